//! The guard beside nodes that are processes of this machine.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{TestEnv, turn};

fn spec(env: &TestEnv, end: &str) -> String {
    let to = env.root().join("outlives");
    format!(
        "name: slot\ntimeouts: {{start: 4m, ready: 4m}}\nray: {{head: {{object_store_memory: 80MiB}}, \
         workers: {{count: 1, cpus: 1, memory: 300MiB, object_store_memory: 80MiB}}}}\n{}",
        end.replace("OUT", &to.display().to_string())
    )
}

/// The folder of the cluster's host.
fn home(env: &TestEnv) -> PathBuf {
    let hosts = env.paths().data.join("hosts");
    let found = walk(&hosts, "nodes.json").or_else(|| walk(&env.home(), "nodes.json"));
    found.unwrap().parent().unwrap().to_owned()
}

fn walk(folder: &Path, name: &str) -> Option<PathBuf> {
    let entries: Vec<_> = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).collect();
    entries
        .iter()
        .find(|path| path.ends_with(name))
        .cloned()
        .or_else(|| entries.iter().filter(|path| path.is_dir() && !path.is_symlink()).find_map(|path| walk(path, name)))
}

fn process(home: &Path, key: &str) -> String {
    let line = std::fs::read_to_string(home.join("run").join(key)).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[0], "running", "{key}: {line}");
    words[1].to_owned()
}

fn read(path: PathBuf) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
#[ignore = "by hand: just end-story"]
fn a_changed_end_restarts_the_guard_alone_which_is_given_the_deadline() {
    let _turn = turn();
    let env = TestEnv::with_shared_ray();
    env.write("cluster.yaml", &spec(&env, "deadline: 3h\nend: {save: [{from: results, to: OUT/a}]}\n"));
    env.accept("cluster.yaml");
    let _ = env.run(&["up"]).exits(0);
    let home = home(&env);
    let settings = read(home.join("guard.json"));
    let data = home.join("data").display().to_string();
    assert_eq!((settings["data"].as_str(), settings["leads"].as_bool()), (Some(data.as_str()), Some(true)));
    assert!(Path::new(settings["ray"]["ray"].as_str().unwrap()).is_file(), "{settings}");
    assert_eq!(settings["stores"]["outside"], Value::Null);
    assert!(!home.join("secrets/end_credentials").exists());
    // The end is known on the host, and within a minute it is the one that commands show.
    let given = read(home.join("guard/end.json"));
    let left = given["left_s"].as_f64().unwrap();
    assert!((10_500.0..=10_800.0).contains(&left), "{given}");
    let _ = env.run(&["logs", "guard"]).exits(0);
    let again = env.run(&["up"]).exits(0).stdout;
    assert!(again.contains("nothing was changed"), "{again}");

    let before = ["head", "worker0"].map(|key| process(&home, key));
    let guard = process(&home, "guard");
    env.write("cluster.yaml", &spec(&env, "deadline: 3h\nend: {warning: 5m, save: [{from: results, to: OUT/a}]}\n"));
    let plan = env.run(&["plan"]).exits(0).stdout;
    for line in ["keep head", "keep worker-0", "restart guard: the spec has changed for it"] {
        assert!(plan.contains(line), "{line}\n{plan}");
    }
    let _ = env.run(&["up"]).exits(0);
    assert_eq!(["head", "worker0"].map(|key| process(&home, key)), before, "nodes were started again");
    assert_ne!(process(&home, "guard"), guard);
    assert_eq!(read(home.join("guard.json"))["warning_s"], 300);
    assert!(read(home.join("guard/end.json"))["revision"].as_u64() > given["revision"].as_u64());

    env.write("cluster.yaml", &spec(&env, ""));
    let plan = env.run(&["plan"]).exits(0).stdout;
    assert!(plan.contains("stop guard: not in the spec") && plan.contains("keep head"), "{plan}");
    let _ = env.run(&["up"]).exits(0);
    assert!(!home.join("run/guard").exists(), "the guard still runs");
    assert_eq!(["head", "worker0"].map(|key| process(&home, key)), before, "nodes were started again");
    let _ = env.run(&["down", "--yes"]).exits(0);
    assert!(!home.exists() || std::fs::read_dir(&home).unwrap().count() <= 1, "{}", home.display());
}
