//! PyTorch itself in containers: the job that everybody writes first, and the loaders that feed it. `just lab-torch`.

use super::spec::{env, gpucl, spec};
use super::testbed::TestHost;
use crate::support::turn;

/// Four loader workers, each one batch of 1 GiB ahead: five such batches are in the shared memory at once.
const LOADERS: &str = r#"
import os, shutil, time, torch
from torch.utils.data import DataLoader, Dataset

class Batches(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, number):
        return torch.full((1 << 28,), float(number))

if __name__ == "__main__":
    begin, most = time.time(), 0
    for batch in DataLoader(Batches(), batch_size=None, num_workers=4, prefetch_factor=1):
        most = max(most, shutil.disk_usage("/dev/shm").used)
        assert batch.numel() == 1 << 28 and batch[0] == batch[-1]
    size = shutil.disk_usage("/dev/shm").total
    print(f"8 batches of 1 GiB in {time.time() - begin:.1f} s; /dev/shm: {most >> 20} of {size >> 20} MiB in use at most")
"#;

/// `TorchTrainer` with four workers on gloo, a checkpoint after each epoch, and a second job that goes on from there.
#[test]
#[ignore = "by hand: just lab-torch"]
fn four_workers_train_in_containers_and_loaders_have_room() {
    let _turn = turn();
    let host = TestHost::start("torch", &[]);
    let env = env();
    let more = "setup: {pip: [torch, torchvision]}\nservices: {jupyter: false, prometheus: false}\n";
    let spec = spec("torch", &[&host], more).replace("per: gpu, cpus: 1", "count: 4, cpus: 1");
    env.write("cluster.yaml", &spec.replace("timeouts: {", "timeouts: {prepare: 60m, "));
    env.write("job/loaders.py", LOADERS);
    let up = gpucl(&env, &["up"]).exits(0).prints("ready: ");
    println!("{}", up.stdout.lines().find(|line| line.starts_with("ready: ")).unwrap());

    let train = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/train");
    let job = |folder: &str, program: &[&str]| {
        let job =
            gpucl(&env, &[&["job", "submit", "--working-dir", folder, "--", "python"], program].concat()).exits(0);
        println!("{}", job.stdout);
        job
    };
    let epochs = |number| ["train.py", "--epochs", number, "--images", "1024", "--name", "four"];
    let first = job(train, &epochs("2")).prints("'epoch': 1").prints("after epoch 1");
    assert!(first.stdout.contains("world_size=4") || first.stderr.contains("world_size=4"), "{first:?}");
    let second = job(train, &epochs("3")).prints("after epoch 2");
    assert!(!second.stdout.contains("'epoch': 1,"), "it went on from the checkpoint: {}", second.stdout);
    // On a worker: the head has no CPUs, and no room for loaders.
    let loaders = ["job", "submit", "--working-dir", "job", "--entrypoint-num-cpus", "1", "--", "python", "loaders.py"];
    println!("{}", gpucl(&env, &loaders).exits(0).prints("8 batches of 1 GiB in").stdout);

    gpucl(&env, &["down", "--yes", "--purge"]).exits(0).prints("is left");
    // `--purge` removes the engine too, where `up` installed it.
    assert_eq!(host.sh("! command -v docker >/dev/null || docker ps -q").trim(), "");
}
