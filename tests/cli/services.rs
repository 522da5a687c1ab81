//! The settings of services in a spec reach the rendered files, and no credential does.

use std::path::Path;

use serde_json::Value;

use crate::support::TestEnv;

const KEYS: &str = "[default]\naws_access_key_id = AKIA-DEFAULT\naws_secret_access_key = SECRET-DEFAULT\n\
                    [lab]\naws_access_key_id = AKIA-LAB\naws_secret_access_key = SECRET-LAB\n";

fn spec(services: &str) -> String {
    format!(
        "name: s\nprovider: ssh\nruntime: docker\nhosts: [{{node: host.example.org}}]\nray: {{workers: {{count: 1}}}}\n{services}"
    )
}

/// Renders a spec; returns the head's compose project and all that was written.
fn rendered(env: &TestEnv, services: &str) -> (Value, String) {
    env.write("cluster.yaml", &spec(services));
    env.run(&["render", "--to", "out"]).exits(0);
    let project = std::fs::read_to_string(env.work().join("out/host-0/compose/compose.yaml")).unwrap();
    let mut all = String::new();
    gather(&env.work().join("out"), &mut all);
    (serde_yaml::from_str(&project).unwrap(), all)
}

fn gather(folder: &Path, all: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        match entry.path().is_dir() {
            true => gather(&entry.path(), all),
            false => all.push_str(&String::from_utf8_lossy(&std::fs::read(entry.path()).unwrap())),
        }
    }
}

#[test]
fn settings_of_services_arrive_in_the_project() {
    let env = TestEnv::new();
    env.write("mine.yaml", "services: {mlflow: {image: 'example.org/mlflow:1'}}\n");
    let (project, all) = rendered(
        &env,
        "services:\n  grafana: false\n  object_store: {buckets: [ray, data], image: 'example.org/minio:1'}\n  \
         prometheus: {retention: 30d}\n  jupyter: {workspace: /home/ubuntu/work}\n\
         images: {ray: 'example.org/ray:1', jupyter: 'example.org/jupyter:1'}\ncompose: [mine.yaml]\n\
         build: {pip_index_url: 'https://pip.example.org/simple'}\n",
    );
    let services = &project["services"];
    assert!(services["grafana"].is_null());
    let command = services["prometheus"]["command"].as_array().unwrap();
    assert!(command.contains(&"--storage.tsdb.retention.time=30d".into()), "{command:?}");
    let jupyter = &services["jupyter"];
    assert_eq!((&jupyter["image"], &jupyter["user"]), (&"example.org/jupyter:1".into(), &"1000".into()));
    assert_eq!(jupyter["security_opt"][0], "no-new-privileges:true");
    assert_eq!(jupyter["volumes"][0]["source"], "/home/ubuntu/work");
    assert_eq!(jupyter["volumes"][0]["bind"]["create_host_path"], false, "the engine would make it as root");
    assert_eq!(services["head"]["image"], "example.org/ray:1");
    assert_eq!(services["objectstore"]["image"], "example.org/minio:1");
    assert!(all.contains(r#""buckets":["ray","data"]"#), "the head does not make the buckets");
    let mine = std::fs::read_to_string(env.work().join("out/host-0/compose/user-0.yaml")).unwrap();
    assert!(mine.contains("example.org/mlflow:1"));

    // An invalid value is refused with the valid ones.
    env.write("cluster.yaml", &spec("services: {prometheus: 7d, jupyter: [a]}\n"));
    let _ = env
        .run(&["render"])
        .exits(2)
        .says("services.prometheus: is the text `7d`, must be true or false or a map of keys")
        .says("services.jupyter: is a list, must be true or false or a map of keys");
    env.write("cluster.yaml", &spec("services: {prometheus: {retentoin: 7d}}\n"));
    let _ = env.run(&["render"]).exits(2).says("services.prometheus.retentoin: unknown key").says("`retention`");
}

#[test]
fn keys_of_an_existing_store_are_never_rendered() {
    let env = TestEnv::new();
    env.write("keys", KEYS);
    let external = |more: &str| {
        format!(
            "services:\n  object_store:\n    external: {{endpoint: 'https://s3.example.org', credentials_file: keys{more}}}\n    \
             buckets: [results]\n"
        )
    };
    for more in ["", ", profile: lab"] {
        let (project, all) = rendered(&env, &external(more));
        assert_eq!(project["services"]["head"]["environment"]["AWS_ENDPOINT_URL"], "https://s3.example.org");
        assert!(project["services"]["objectstore"].is_null());
        for text in ["AKIA", "SECRET-"].into_iter().chain(KEYS.lines().filter(|line| line.contains("SECRET"))) {
            assert!(!all.contains(text), "{text} was rendered");
        }
        let text = std::fs::read_to_string(env.work().join("out/host-0/secrets/aws_credentials")).unwrap();
        assert!(text.contains("up reads them from your credentials_file"), "{text}");
        // Deliveries are packed: the keys are not in the package either.
        assert!(!all.contains(&base64_of("AKIA-LAB")) && !all.contains(&base64_of("AKIA-DEFAULT")));
    }
    env.write("cluster.yaml", &spec(&external(", profile: nobody")));
    let _ = env.run(&["render"]).exits(2).says("it has no section [nobody]; there are: default, lab");
}

/// A piece of it as it would stand in base64 wherever it begins on a group of three bytes.
fn base64_of(text: &str) -> String {
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let whole = text.as_bytes().chunks_exact(3);
    whole
        .flat_map(|three| {
            let bits = u32::from(three[0]) << 16 | u32::from(three[1]) << 8 | u32::from(three[2]);
            [18, 12, 6, 0].map(|shift| char::from(letters[(bits >> shift & 63) as usize]))
        })
        .collect()
}
