//! What hosts get for the guard, as `render` shows it.

use serde_json::Value;

use crate::support::TestEnv;

const KEYS: &str = "[default]\naws_access_key_id = AKIA-END\naws_secret_access_key = SECRET-END\n";
const STORE: &str = "store: {endpoint: 'https://s3.example.org', credentials_file: keys}";

fn files(env: &TestEnv, spec: &str) -> Vec<String> {
    env.write("keys", KEYS);
    env.write("cluster.yaml", spec);
    let printed = env.run(&["render", "--to", "out"]).exits(0).stdout;
    printed.lines().map(|line| line.trim_start_matches("out/").to_owned()).collect()
}

fn read(env: &TestEnv, name: &str) -> String {
    std::fs::read_to_string(env.work().join("out").join(name)).unwrap()
}

/// The guard's container on a host, and its settings.
fn container(env: &TestEnv, host: &str) -> (Value, Value) {
    let project: Value = serde_yaml::from_str(&read(env, &format!("{host}/compose/compose.yaml"))).unwrap();
    let settings = serde_json::from_str(&read(env, &format!("{host}/end/guard.json"))).unwrap();
    (project["services"]["guard"].clone(), settings)
}

fn secrets(container: &Value) -> Vec<String> {
    let mounts = container["volumes"].as_array().unwrap().iter().filter_map(|mount| mount["source"].as_str());
    mounts.filter_map(|source| source.strip_prefix("../secrets/")).map(str::to_owned).collect()
}

#[test]
fn processes_get_the_guard_and_the_one_key_that_it_needs() {
    let env = TestEnv::new();
    let plain = "name: r\nray: {workers: {count: 1, cpus: 0}}\n";
    let without = files(&env, plain);
    let with = files(&env, &format!("{plain}end:\n  save: [{{from: out, to: 's3://kept/run'}}]\n  {STORE}\n"));
    let more: Vec<&String> = with.iter().filter(|name| !without.contains(name)).collect();
    assert!(
        more.iter().all(|name| name.starts_with("host-0/end/") || *name == "host-0/secrets/end_credentials"),
        "{more:?}"
    );
    assert!(with.contains(&"host-0/end/guard.py".to_owned()) && with.len() == without.len() + more.len(), "{with:?}");
    let all: String = with.iter().map(|name| read(&env, name)).collect();
    assert!(!all.contains("SECRET-END") && !all.contains("AKIA-END"), "a key was rendered");
    let nodes: Value = serde_json::from_str(&read(&env, "host-0/nodes.json")).unwrap();
    let settings = &nodes["files"]["guard.json"];
    assert_eq!(settings["save"][0]["to"], "s3://kept/run");
    assert_eq!(settings["stores"]["outside"]["credentials"], "@home@/secrets/end_credentials");
    assert_eq!((&settings["stores"]["own"], &settings["idle"]), (&Value::Null, &Value::Null));
    let guard = nodes["nodes"].as_array().unwrap().iter().find(|node| node["key"] == "guard").unwrap();
    assert_eq!(guard["role"], "service");

    // What is copied to this machine alone is not the guard's, which then only asks jobs to save.
    let here = files(&env, &format!("{plain}end: {{save: [{{from: out, to: 'here:out'}}]}}\n"));
    let nodes: Value = serde_json::from_str(&read(&env, "host-0/nodes.json")).unwrap();
    assert_eq!(nodes["files"]["guard.json"]["save"].as_array().map(Vec::len), Some(0));
    assert!(!here.contains(&"host-0/secrets/end_credentials".to_owned()));
    let idle = files(&env, &format!("{plain}idle: {{after: 1h}}\n"));
    let nodes: Value = serde_json::from_str(&read(&env, "host-0/nodes.json")).unwrap();
    assert_eq!(nodes["files"]["guard.json"]["idle"]["after_s"], 3600);
    assert!(idle.contains(&"host-0/end/guard.py".to_owned()));
}

#[test]
fn a_container_guards_with_the_secrets_that_it_needs() {
    let env = TestEnv::new();
    let spec = |end: &str| {
        format!(
            "name: s\nprovider: ssh\nruntime: docker\nhosts: [{{node: a.example.org}}, {{node: b.example.org}}]\n\
             ray: {{workers: {{per: host}}}}\n{end}"
        )
    };
    let _ = files(&env, &spec(""));
    for host in ["host-0", "host-1"] {
        let project = read(&env, &format!("{host}/compose/compose.yaml"));
        assert!(!project.contains("guard"), "{project}");
    }
    let all =
        "end:\n  save: [{from: out, to: 's3://kept/run'}, {from: 's3://ray/runs', to: /mnt/kept}]\n  STORE\nidle: {}\n";
    let _ = files(&env, &spec(&all.replace("STORE", STORE)));
    let (head, settings) = container(&env, "host-0");
    assert_eq!(secrets(&head), ["ray_token", "jupyter_token", "aws_credentials", "end_credentials"]);
    assert_eq!((&head["restart"], &head["cap_drop"][0]), (&"unless-stopped".into(), &"ALL".into()));
    let mount = |target: &str| head["volumes"].as_array().unwrap().iter().find(|one| one["target"] == target).unwrap();
    assert_eq!(mount("/data")["read_only"], Value::Null, "the end is said there to jobs, in a file");
    assert_eq!(mount("/mnt/kept")["bind"]["create_host_path"], false);
    assert_eq!((&settings["leads"], &settings["hosts"]), (&true.into(), &2.into()));
    assert!(settings["jupyter"]["url"].as_str().unwrap().starts_with("http"), "{settings}");
    // The other host copies its own data, and has nothing of Ray, Jupyter or the cluster's own store.
    let (other, settings) = container(&env, "host-1");
    assert_eq!(secrets(&other), ["end_credentials"]);
    assert_eq!(other["labels"]["gpucl.key"], "guard1");
    assert_eq!((&settings["ray"], &settings["stores"]["own"]), (&Value::Null, &Value::Null));
    assert_eq!(settings["save"].as_array().map(Vec::len), Some(1));
    // With nothing of its own to save, it has no guard.
    let _ = files(&env, &spec("idle: {after: 1h}\n"));
    assert_eq!(secrets(&container(&env, "host-0").0), ["ray_token", "jupyter_token"]);
    assert!(!read(&env, "host-1/compose/compose.yaml").contains("guard"));

    env.write("cluster.yaml", &spec("end: {save: [{from: out, to: '~/kept'}]}\n"));
    let _ = env.run(&["plan"]).exits(2).says("end.save[0].to").says("absolute path");
}
