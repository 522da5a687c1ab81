//! An allocation of the user's own: the cluster starts in it, and leaves it as it was.

use serde_json::json;

use super::testbed::{left, login, nothing_is_left, taken_down, turn, with_ready_ray, with_ready_ray_and};
use crate::support::{TestEnv, until, until_or};

/// Ends a job when the test ends.
struct Allocation(String);

impl Allocation {
    /// As `salloc` grants it, for so many minutes.
    fn granted(minutes: u32) -> Self {
        let options =
            "--no-shell --nodes=2 --exclude=n3 --ntasks-per-node=1 --cpus-per-task=2 --mem=6G --gpus-per-node=1";
        let said = login("ada", &format!("salloc {options} --time={minutes} 2>&1"));
        let number = said.split("Granted job allocation ").nth(1).and_then(|rest| rest.split_whitespace().next());
        Self(number.unwrap_or_else(|| panic!("{said}")).to_owned())
    }

    fn state(&self) -> String {
        login("ada", &format!("squeue -h -j {} -o %T 2>/dev/null || true", self.0)).trim().to_owned()
    }

    /// The names of its steps, without Slurm's own.
    fn steps(&self) -> String {
        login("ada", &format!("squeue -h -s -j {} -o '%i|%j' | grep -v '|extern' || true", self.0))
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        login("ada", &format!("scancel {}", self.0));
    }
}

#[test]
#[ignore = "by hand: just slurm"]
fn a_cluster_starts_in_an_allocation_and_leaves_it() {
    let _turn = turn();
    let env = TestEnv::new();
    let allocation = Allocation::granted(20);
    let number: u64 = allocation.0.parse().unwrap();
    let spec = with_ready_ray(&env, "inside", 2, &json!({ "allocation": number, "gpus": 1 }));
    env.run(&["plan", &spec]).exits(0).prints(&format!("it starts in your allocation {number}, which stays"));
    let up = env.run(&["up", &spec]).exits(0).prints("ready:");
    println!("{}", up.stderr);
    assert!(allocation.steps().contains("-inside-job"), "{}", allocation.steps());
    assert_eq!(login("ada", "squeue -h -u ada -o %i").trim(), allocation.0, "no other job");
    let program = "import ray; ray.init(); print('GPUs', ray.cluster_resources().get('GPU'), 'CPUs', ray.cluster_resources()['CPU'])";
    let job = env.run(&["job", "submit", "-c", "inside", "--", "python", "-c", program]).exits(0);
    assert!(job.stdout.contains("GPUs 2.0"), "{}", job.stdout);
    println!("{}", job.stdout);
    env.run(&["up", &spec]).exits(0).prints("nothing was changed");
    env.run(&["status", "-c", "inside"]).exits(0).says("its hosts will be taken away at");
    env.run(&["down", "--yes", "-c", "inside"]).exits(0).prints("nothing of inside is left");
    assert_eq!((allocation.state().as_str(), allocation.steps().as_str()), ("RUNNING", ""));
    // The site's own folder of the allocation lives as long as it.
    let of_site = format!(":/localscratch/ada.{number}.0");
    let ours = || -> Vec<String> { left().into_iter().filter(|item| !item.ends_with(&of_site)).collect() };
    until_or("nothing is left", 20, || ours().is_empty().then_some(()), || ours().join("\n"));

    // One that is not running, and more nodes than it has: refused, and nothing is begun.
    let none = with_ready_ray(&env, "none", 1, &json!({ "allocation": 4_000_000 }));
    env.run(&["up", &none]).exits(1).says("is not a running one of yours");
    let many = with_ready_ray(&env, "many", 3, &json!({ "allocation": number }));
    let up = env.run(&["up", &many]).exits(1);
    println!("{}", up.stderr);
    assert_eq!(ours(), Vec::<String>::new());
}

/// Slurm announces its end to nobody: the guard was given it.
#[test]
#[ignore = "by hand: just slurm"]
fn results_are_saved_before_an_allocation_ends() {
    let _turn = turn();
    let env = TestEnv::new();
    let allocation = Allocation::granted(3);
    let number: u64 = allocation.0.parse().unwrap();
    let end = json!({ "end": { "warning": "30s", "save": [{ "from": "out", "to": "~/results/inside" }] } });
    let spec = with_ready_ray_and(&env, "saving", 1, &json!({ "allocation": number }), &end);
    env.run(&["up", &spec]).exits(0).prints("ready:");
    let program = "mkdir -p $GPUCL_DATA/out && echo kept >$GPUCL_DATA/out/file";
    env.run(&["job", "submit", "-c", "saving", "--", "sh", "-c", program]).exits(0);
    until("the allocation is over", 200, || (allocation.state() != "RUNNING").then_some(()));
    assert_eq!(login("ada", "cat ~/results/inside/file"), "kept\n");
    let _ = taken_down(&env, "saving").says("out to ~/results/inside: 1 file").says("verified");
    login("ada", "rm -rf ~/results");
    nothing_is_left();
}
