//! Jobs that hold GPUs.

use super::{TestEnv, until};

/// Holds one GPU by each of as many tasks as there are GPUs.
const HOLD: &str = "import ray, time\nray.init(log_to_driver=False)\nhold = ray.remote(num_gpus=1)(lambda: (print('holds', \
                    flush=True), time.sleep(600)))\nall = [hold.remote() for _ in range(int(ray.cluster_resources()['GPU']))]\n\
                    while ray.available_resources().get('GPU', 0) > 0: time.sleep(0.1)\nprint('all are held', flush=True)\n\
                    ray.get(all)";

/// Checks pass beside a job that holds every GPU of the cluster.
#[track_caller]
pub(crate) fn checks_pass_beside_a_job_that_holds_all_gpus(env: &TestEnv, cluster: &str) {
    env.run(&["job", "submit", "-c", cluster, "--id", "holds", "--no-wait", "--", "python", "-c", HOLD]).exits(0);
    let log = || env.run(&["job", "logs", "-c", cluster, "holds"]).stdout;
    until("a job holds all GPUs", 90, || log().contains("all are held").then_some(()));
    env.run(&["verify", "-c", cluster]).exits(0).prints("CUDA: 1 MiB written and read back");
    env.run(&["job", "stop", "-c", cluster, "holds"]).exits(0);
}
