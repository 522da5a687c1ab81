//! Mounts in a spec, without a cluster.

use crate::support::TestEnv;

const SPEC: &str = "name: m\nprovider: ssh\nruntime: docker\nhosts: [{node: host.example.org}]\nmounts:\n  - ";

#[test]
fn a_strangers_spec_mounts_no_sensitive_folder_unseen() {
    let env = TestEnv::new();
    for (path, why) in [
        ("/", "has the system's folders in it"),
        ("/etc", "belongs to the system"),
        ("/root", "belongs to the system"),
        ("/var/run/docker.sock", "is a socket"),
        ("/home/ubuntu", "is somebody's home"),
    ] {
        env.write("cluster.yaml", &format!("{SPEC}{{host: {path}, at: /mine, read_only: true}}\n"));
        for verb in ["plan", "render", "up"] {
            let _ = env
                .run(&[verb, "--yes"])
                .exits(2)
                .is("")
                .says("cluster.yaml:6:12: mounts[0].host")
                .says(why)
                .says(&format!("--allow-mount {path}"));
        }
        env.run(&["render", "--allow-mount", "/srv"]).exits(2);
        env.run(&["render", "--allow-mount", path]).exits(0);
        let project = std::fs::read_to_string(env.work().join("rendered/m/host-0/compose/compose.yaml")).unwrap();
        let line = format!(
            "- {{type: bind, source: \"{path}\", target: \"/mine\", read_only: true, bind: {{create_host_path: false}}}}"
        );
        // The head, a worker and Jupyter.
        assert_eq!(project.matches(&line).count(), 3, "{project}");
    }
}

#[test]
fn mistakes_in_mounts_have_their_place() {
    let env = TestEnv::new();
    let two = "{host: /srv, at: /data/x}\n  - {host: /srv, file_system_at: /x, at: /y}\n";
    env.write("cluster.yaml", &format!("{SPEC}{two}"));
    let _ = env
        .run(&["render"])
        .exits(2)
        .says("cluster.yaml:6:22: mounts[0].at: `/data/x` would cover /data")
        .says("mounts[1].file_system_at: unknown key");
    env.write("cluster.yaml", "name: m\nmounts: [{volume: v, at: /v}]\n");
    let _ = env.run(&["render"]).exits(2).says("requires the runtime `docker`").says("use $GPUCL_DATA");
}
