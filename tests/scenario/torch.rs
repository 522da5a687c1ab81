//! PyTorch itself, on this machine: the job that everybody writes first.

use crate::support::{TestEnv, tagged_processes, turn};

/// The job of `examples/train` as its README has it: `TorchTrainer` with four workers on gloo, a checkpoint after each
/// epoch, and a second job that goes on from there. PyTorch is 5 GB: its environment is kept between runs of the tests.
#[test]
#[ignore = "by hand: just lab-torch"]
fn four_workers_train_together_and_go_on_from_their_checkpoint() {
    let _turn = turn();
    let mut env = TestEnv::new();
    let home = std::env::var("HOME").unwrap();
    env.set("XDG_CACHE_HOME", &format!("{home}/.cache/gpucl-testbed/torch"));
    let train = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/train");
    env.write("cluster.yaml", &std::fs::read_to_string(format!("{train}/cluster.yaml")).unwrap());
    env.accept("cluster.yaml");
    let up = env.run(&["up"]).exits(0).prints("ready: ");
    println!("{}", up.stdout.lines().find(|line| line.starts_with("ready: ")).unwrap());

    let job = |epochs: &str| {
        let program = ["--", "python", "train.py", "--epochs", epochs, "--images", "1024", "--name", "four"];
        let job = env.run(&[&["job", "submit", "--working-dir", train], program.as_slice()].concat()).exits(0);
        println!("{}", job.stdout);
        job
    };
    let first = job("2").prints("'epoch': 0").prints("'epoch': 1").prints("after epoch 1");
    assert!(first.stdout.contains("world_size=4") || first.stderr.contains("world_size=4"), "{first:?}");
    let second = job("3").prints("'epoch': 2").prints("after epoch 2");
    assert!(!second.stdout.contains("'epoch': 1,"), "it went on from the checkpoint: {}", second.stdout);

    env.run(&["down", "--yes"]).exits(0).prints("is left");
    assert_eq!(tagged_processes(&env), []);
}
