//! A spec's `setup`, without a cluster.

use crate::support::TestEnv;

const SPEC: &str = "name: s\nprovider: ssh\nruntime: docker\nhosts: [{node: host.example.org}]\nsetup:\n";

#[test]
fn mistakes_in_a_setup_have_their_place() {
    let env = TestEnv::new();
    env.write("needs.txt", "torch\n./mine.whl\n");
    for (setup, place, why) in [
        ("  pip: [torch, -e .]\n", "cluster.yaml:6:16: setup.pip[1]", "an editable package"),
        ("  pip: [./mine.whl]\n", "cluster.yaml:6:9: setup.pip[0]", "a path of this machine"),
        ("  pip: [x @ https://me:hush@h/x.whl]\n", "cluster.yaml:6:9: setup.pip[0]", "a URL with a password"),
        ("  requirements: needs.txt\n", "cluster.yaml:6:17: setup.requirements", "needs.txt: `./mine.whl` is a path"),
        ("  requirements: none.txt\n", "cluster.yaml:6:17: setup.requirements", "cannot be read"),
        ("  index_url: https://me:hush@h/simple\n", "cluster.yaml:6:14: setup.index_url", "a URL with a password"),
        ("  commands: ['']\n", "cluster.yaml:6:14: setup.commands[0]", "is empty"),
        ("  pips: [torch]\n", "cluster.yaml:6:3: setup.pips", "did you mean `pip`?"),
    ] {
        env.write("cluster.yaml", &format!("{SPEC}{setup}"));
        for verb in ["plan", "render", "up"] {
            let _ = env.run(&[verb, "--yes"]).exits(2).is("").says(place).says(why);
        }
    }
}

/// Head, workers and Jupyter have it, whose image derives from that of the nodes; the order is that of the spec.
#[test]
fn containers_have_an_image_named_by_the_content() {
    let env = TestEnv::new();
    env.write("needs.txt", "numpy<3\n");
    let images = |setup: &str| {
        env.write("cluster.yaml", &format!("{SPEC}{setup}"));
        env.run(&["render"]).exits(0);
        let project = std::fs::read_to_string(env.work().join("rendered/s/host-0/compose/compose.yaml")).unwrap();
        let images = project.lines().filter_map(|line| line.trim().strip_prefix("image: "));
        let ours = images.filter(|image| image.contains("gpucl/")).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(ours.iter().filter(|image| image.contains("gpucl/ray-setup:")).count(), 2, "{ours:?}");
        assert_eq!(ours.iter().filter(|image| image.contains("gpucl/jupyter-ray:")).count(), 1, "{ours:?}");
        ours
    };
    let torch = images("  pip: [torch]\n  requirements: needs.txt\n");
    assert_eq!(torch, images("  requirements: needs.txt\n  pip: ['torch']\n"));
    assert_ne!(torch, images("  requirements: needs.txt\n  pip: [torch==2.9]\n"));
    assert_ne!(torch, images("  requirements: needs.txt\n  pip: [torch]\n  commands: ['true']\n"));
}
