//! A worker that Ray's own command takes out of its cluster.

use super::TestEnv;

/// Drains a worker of a cluster: its raylet ends with exit code 0, and `ray start --block` would stay.
#[track_caller]
pub(crate) fn drain_a_worker(env: &TestEnv, cluster: &str) {
    env.write("drain/drain.py", include_str!("drain.py"));
    let submit = ["job", "submit", "-c", cluster, "--working-dir", "drain", "--", "python", "drain.py"];
    let _ = env.run(&submit).exits(0).prints("drained");
}
