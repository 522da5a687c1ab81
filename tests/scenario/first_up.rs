//! From nothing to ready, again without a change, and back to nothing.

use crate::support::{TestEnv, tagged_processes, turn};

#[test]
fn up_is_ready_and_down_leaves_nothing() {
    let _turn = turn();
    let env = TestEnv::with_shared_ray();
    let spec = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/local.yaml");
    env.run(&["up", spec]).exits(0).prints("ready: 11 checks passed, 6 operations");
    env.run(&["up", spec]).exits(0).prints("nothing was changed");
    assert!(!tagged_processes(&env).is_empty());
    env.run(&["down", "--yes"]).exits(0).prints("nothing of local is left");
    assert_eq!(tagged_processes(&env), []);
}
