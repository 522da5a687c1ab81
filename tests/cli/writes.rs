//! What is written into a folder that somebody else made: nothing goes through a link.

use std::os::unix::fs::symlink;

use crate::support::TestEnv;

const SPEC: &str = "name: x\nprovider: ssh\nruntime: docker\nhosts: [gpu1]\n";

/// A working folder as it comes with a repository, with a file in the home folder that it must not reach.
fn repository() -> TestEnv {
    let env = TestEnv::new();
    env.write("cluster.yaml", SPEC);
    std::fs::write(env.home().join(".bashrc"), "mine").unwrap();
    env
}

#[track_caller]
fn is_untouched(env: &TestEnv) {
    assert_eq!(std::fs::read_to_string(env.home().join(".bashrc")).unwrap(), "mine", "written through a link");
    assert_eq!(std::fs::read_dir(env.home()).unwrap().count(), 1, "something was made through a link");
}

#[test]
fn render_follows_no_link_and_writes_nothing_then() {
    for (link, target, arguments) in [
        ("rendered/x/host-0/compose/compose.yaml", "../../../../../home/.bashrc", vec!["render"]),
        ("rendered/x/host-0/compose/compose.yaml", "../../../../../home/.new", vec!["render"]),
        ("rendered/x/host-0", "../../../home", vec!["render"]),
        ("rendered/x", "../../home", vec!["render"]),
        ("rendered", "../home", vec!["render"]),
        ("out/host-0/prepare.sh", "../../../home/.bashrc", vec!["render", "--to", "out"]),
        ("out/host-0/compose", "../../../home", vec!["render", "--to", "out"]),
        ("rendered/x/ray-cluster.yaml", "../../../home/.bashrc", vec!["render", "--as", "ray-cluster-yaml"]),
    ] {
        let env = repository();
        let link = env.work().join(link);
        std::fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(target, &link).unwrap();
        let shown = link.strip_prefix(env.work()).unwrap().display().to_string();
        let refused = env.run(&arguments).exits(1).is("").says(&format!("{shown} is a link"));
        let _ = refused.says("nothing was written");
        is_untouched(&env);
        assert!(!env.work().join("rendered/x/README.txt").exists() && !env.work().join("out/README.txt").exists());
    }
    // A folder that the user names may be a link, and a second name of a file is not written through.
    let env = repository();
    std::fs::create_dir_all(env.root().join("scratch")).unwrap();
    symlink(env.root().join("scratch"), env.work().join("out")).unwrap();
    std::fs::hard_link(env.home().join(".bashrc"), env.root().join("scratch/README.txt")).unwrap();
    env.run(&["render", "--to", "out"]).exits(0);
    assert!(std::fs::read_to_string(env.root().join("scratch/README.txt")).unwrap().contains("gpucl render"));
    is_untouched(&env);
}

#[test]
fn no_template_is_copied_through_a_link() {
    for (link, target) in
        [(".gpucl", "../home"), (".gpucl/templates", "../../home"), (".gpucl/templates/ray-compose", "../../../home")]
    {
        let env = repository();
        let link = env.work().join(link);
        std::fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(target, &link).unwrap();
        let _ = env
            .run(&["template", "eject", "ray-compose"])
            .exits(1)
            .is("")
            .says("is a link")
            .says("nothing was written");
        is_untouched(&env);
    }
}

#[test]
fn no_man_page_is_written_through_a_link() {
    let env = repository();
    std::fs::create_dir_all(env.work().join("man")).unwrap();
    symlink("../../home/.bashrc", env.work().join("man/gpucl-up.1")).unwrap();
    let _ = env.run(&["man", "--to", "man"]).exits(1).says("man/gpucl-up.1 is a link").says("nothing was written");
    is_untouched(&env);
    assert_eq!(std::fs::read_dir(env.work().join("man")).unwrap().count(), 1);
    std::fs::remove_file(env.work().join("man/gpucl-up.1")).unwrap();
    env.run(&["man", "--to", "man"]).exits(0);
    for page in ["gpucl.1", "gpucl-up.1", "gpucl-store-get.1"] {
        assert!(env.work().join("man").join(page).exists(), "{page}");
    }
}
