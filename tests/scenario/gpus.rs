//! GPUs that are declared but missing.

use crate::support::TestEnv;

#[test]
fn missing_gpus_are_refused_before_anything_is_done() {
    let env = TestEnv::new();
    // One more than this machine has.
    let gpus = gpus_here() + 1;
    env.write("cluster.yaml", &format!("name: g\nray:\n  workers: {{count: 1, gpus: {gpus}}}\n"));
    for verb in ["plan", "up", "render"] {
        env.run(&[verb])
            .exits(2)
            .says("cluster.yaml:3:29")
            .says("ray.workers.gpus")
            .says("for logical GPUs set `gpu: declared`");
    }
    assert!(!env.home().join(".local/share").exists(), "no host was made");
    assert!(!env.home().join(".local/state/gpucl/clusters").exists(), "no cluster was begun");
    assert!(!env.work().join("rendered").exists(), "nothing was rendered");
}

/// NVIDIA's and AMD's display controllers on the PCI bus.
fn gpus_here() -> usize {
    let devices = std::fs::read_dir("/sys/bus/pci/devices").into_iter().flatten().flatten();
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    devices
        .filter(|device| {
            let vendor = read(device.path().join("vendor"));
            let class = read(device.path().join("class"));
            matches!(vendor.trim(), "0x10de" | "0x1002") && (class.starts_with("0x03") || class.starts_with("0x12"))
        })
        .count()
}
