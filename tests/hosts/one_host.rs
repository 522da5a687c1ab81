//! One fresh host with two GPUs: from nothing to ready, again beside a running job, and away.

use super::spec::{env, gpucl, spec};
use super::testbed::TestHost;
use crate::support::turn;

#[test]
#[ignore = "testbed"]
fn a_fresh_host_with_two_gpus_comes_to_ready_and_goes() {
    let _turn = turn();
    let host = TestHost::start("one", &["--gpus", "nvidia:2", "--image", "fresh"]);
    let env = env();
    env.write("cluster.yaml", &spec("one", &[&host], ""));
    let before = host.sessions();
    let up = gpucl(&env, &["up"]).exits(0).prints("ready:");
    let sessions = host.sessions() - before;
    println!("first up: {sessions} sessions\n{}", up.stdout);
    assert!(sessions <= 3, "{sessions} SSH sessions for a first up");
    for uuid in host.uuids() {
        assert!(up.stderr.contains(&uuid), "{uuid} is not shown:\n{}", up.stderr);
    }
    up.says("Stand-in GPU");
    gpucl(&env, &["down", "--yes"]).exits(0);
}
