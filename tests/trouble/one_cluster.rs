//! One real cluster, and one failure after another: each starts from the state that the previous one left.

use super::tools::SPEC;
use super::{logins, machine, nodes, state, supervisor};
use crate::support::{TestEnv, turn};

#[test]
fn a_bad_day_of_one_cluster() {
    let _turn = turn();
    let env = TestEnv::with_shared_ray();
    let _ = env.write("cluster.yaml", SPEC);
    let _ = env.run(&["up"]).exits(0).prints("ready: 8 checks passed");
    state::an_up_that_fails_before_it_changes_anything(&env);
    logins::the_login_that_made_it_is_gone(&env);
    nodes::a_worker_is_killed(&env);
    nodes::a_worker_is_drained_by_rays_own_command(&env);
    supervisor::the_supervisor_is_killed(&env);
    state::another_spec_of_that_name(&env);
    machine::the_machine_is_restarted(&env, "other.yaml");
    supervisor::the_supervisor_and_a_reaper_are_killed(&env);
}
