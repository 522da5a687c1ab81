//! A built-in template is copied to where it can be changed, and nothing is written over.

use crate::support::TestEnv;

#[test]
fn a_template_that_was_copied_and_changed_is_what_is_rendered() {
    let env = TestEnv::new();
    env.write("cluster.yaml", "name: t\nprovider: ssh\nruntime: docker\nhosts: [{node: host.example.org}]\n");
    let _ = env.run(&["template", "list"]).exits(0).prints("ray-compose").prints("jupyter-ray");
    let _ = env
        .run(&["template", "eject", "ray-compose"])
        .exits(0)
        .prints(".gpucl/templates/ray-compose/compose.yaml.tera")
        .prints(".gpucl/templates/ray-compose/start.py");
    let listed = env.run(&["template", "list", "--output", "json"]).exits(0).json();
    let own = listed.iter().find(|template| template["name"] == "ray-compose").unwrap();
    assert_eq!(own["changed"].as_array().unwrap().len(), own["files"].as_u64().unwrap() as usize);

    // What was copied is what was rendered before; and what is changed arrives.
    let render = || {
        env.run(&["render", "--to", "out"]).exits(0);
        std::fs::read_to_string(env.work().join("out/host-0/compose/compose.yaml")).unwrap()
    };
    let before = render();
    let path = env.work().join(".gpucl/templates/ray-compose/compose.yaml.tera");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(before.contains("restart: unless-stopped"));
    std::fs::write(&path, text.replace("restart: unless-stopped", "restart: on-failure")).unwrap();
    assert_eq!(render(), before.replace("restart: unless-stopped", "restart: on-failure"));

    let _ = env.run(&["template", "eject", "ray-compose"]).exits(1).says("already exists").says("nothing was written");
    assert!(std::fs::read_to_string(&path).unwrap().contains("restart: on-failure"), "a change of the user's was lost");
    let _ = env.run(&["template", "eject", "ray-compose", "--to", "other"]).exits(0);
    assert_eq!(
        std::fs::read_to_string(env.work().join("other/templates/ray-compose/compose.yaml.tera")).unwrap(),
        text
    );
    let _ = env.run(&["template", "eject", "ray-compos"]).exits(6).says("did you mean `ray-compose`?");
}
