//! The end of the job's time: what is declared is saved, and the newest checkpoint is there.

use serde_json::json;

use super::testbed::{self, login, nothing_is_left, taken_down, turn};
use crate::support::{TestEnv, until};

const TRAIN: &str = r#"import json, os, time
folder = os.environ["GPUCL_DATA"] + "/checkpoints"
os.makedirs(folder, exist_ok=True)
step = 0
while True:
    step += 1
    with open(f"{folder}/new", "w") as file:
        json.dump({"step": step}, file)
    os.replace(f"{folder}/new", f"{folder}/checkpoint-{step:05}.json")
    with open(os.path.expanduser("~/results/last"), "w") as file:
        file.write(str(step))
    time.sleep(0.2)
"#;

/// A limit of three minutes, as Slurm counts: the last twenty seconds are not ours.
#[test]
#[ignore = "by hand: just slurm"]
fn at_the_time_limit_the_newest_checkpoint_is_saved() {
    let _turn = turn();
    let env = TestEnv::new();
    login("ada", "mkdir -p ~/results");
    let more = json!({
        "hours": 0.05, "cpus": 2, "memory": "6GiB", "environment": testbed::ready_environments("ada"),
    });
    let end = json!({ "warning": "30s", "save": [{ "from": "checkpoints", "to": "~/results/limit" }] });
    let settings = testbed::settings("ada", &more);
    let spec = testbed::spec(&env, "limit", &settings, 1, &json!({ "end": end }));
    env.run(&["up", &spec.display().to_string()]).exits(0).prints("ready:");
    env.write("job/train.py", TRAIN);
    env.run(&["job", "submit", "-c", "limit", "--no-wait", "--working-dir", "job", "--", "python", "train.py"])
        .exits(0);
    until("the job ends", 200, || {
        login("ada", "squeue -h -u $(id -un) -o %j").lines().all(|name| !name.starts_with("gpucl-")).then_some(())
    });
    let _ = taken_down(&env, "limit").says("checkpoints to ~/results/limit: ").says("verified");
    let saved = login("ada", "ls ~/results/limit | tail -n 1");
    let last: u32 = login("ada", "cat ~/results/last").trim().parse().unwrap();
    println!("the last step was {last}; the newest checkpoint that was saved: {}", saved.trim());
    let step: u32 = saved.trim().trim_start_matches("checkpoint-").trim_end_matches(".json").parse().unwrap();
    assert!(step + 1 >= last && step > 3, "{step} of {last}");
    nothing_is_left();
}
