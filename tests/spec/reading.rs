//! What is read: files, defaults, places, examples.

use std::path::Path;
use std::time::Duration;

use gpucl::error::{Error, ErrorKind};
use gpucl::provider::Runtime;
use gpucl::spec::{self, HostChoice, Memory, Per, WorkerGroup, Workers};
use serde_json::json;

use super::{project, read};
use crate::support::TestEnv;

#[test]
fn the_smallest_spec_is_filled_in() {
    let spec = read("name: demo\n").unwrap().spec;
    assert_eq!(spec.name.as_str(), "demo");
    assert_eq!(spec.provider.name(), "local");
    assert_eq!(spec.runtime, Runtime::Native);
    assert_eq!(spec.hosts, [json!({})]);
    assert_eq!(spec.ray.version, spec::DEFAULT_RAY_VERSION);
    assert_eq!(spec.ray.head.cpus, 0);
    assert_eq!(spec.ray.workers, Workers::One(WorkerGroup::default()));
    assert_eq!(spec.timeouts.start.0, Duration::from_secs(120));
}

#[test]
fn every_key_is_read() {
    let text = r#"
name: demo-2
provider: {name: hall, site: north}
runtime: native
hosts: [{node: a}, {node: b}]
ray:
  version: 2.55.1
  head: {cpus: 1, memory: 1GiB, object_store_memory: 78643200, dashboard_port: 8265}
  workers:
    per: host
    cpus: 4
    gpus: 2
    memory: 1.5GiB
    object_store_memory: 75MiB
    resources: {slot: 3, bay: 0}
    labels: {zone: a, example.org/rack: "7", empty: ""}
    name: big
    hosts: [b, 0]
gpu: declared
oversubscribe: true
environment: {OMP_NUM_THREADS: "1", _X: ""}
timeouts: {prepare: 1h 30m, start: 90s, ready: 5m, stop: 500ms, boot: 45m}
"#;
    let spec = read(text).unwrap().spec;
    assert_eq!(spec.provider.settings(), json!({"site": "north"}));
    assert_eq!(spec.hosts, [json!({"node": "a"}), json!({"node": "b"})]);
    assert_eq!(spec.ray.head.object_store_memory, Some(Memory(75 << 20)));
    let workers = &spec.ray.workers.groups()[0];
    assert_eq!(workers.per, Some(Per::Host));
    assert_eq!(workers.memory, Some(Memory(3 << 29)));
    assert_eq!(workers.labels["example.org/rack"], "7");
    assert_eq!(workers.hosts, Some(vec![HostChoice::Name("b".to_owned()), HostChoice::Number(0)]));
    assert_eq!(spec.timeouts.prepare.0, Duration::from_secs(5400));
    assert_eq!(spec.timeouts.boot.map(|boot| boot.0), Some(Duration::from_secs(2700)));
    // What is written to the state is read from it again.
    let again: spec::Spec = serde_json::from_value(serde_json::to_value(&spec).unwrap()).unwrap();
    assert_eq!(again, spec);
}

#[test]
fn workers_are_one_group_or_several() {
    let text = "name: demo\nhosts: [{node: a}, {node: b}]\nray:\n  workers:\n    - {name: big, per: gpu, hosts: [a]}\n    \
                - {name: small, count: 2, cpus: 4, memory: 1GiB, hosts: [1]}\n";
    let spec = read(text).unwrap().spec;
    let groups = spec.ray.workers.groups();
    assert_eq!((groups[0].name.as_deref(), groups[0].per), (Some("big"), Some(Per::Gpu)));
    assert_eq!((groups[1].count, groups[1].cpus, groups[1].memory), (Some(2), Some(4), Some(Memory(1 << 30))));
    assert!(spec.runs_on(&groups[0], 0) && !spec.runs_on(&groups[0], 1) && spec.runs_on(&groups[1], 1));
    assert_eq!(spec.ray.workers.path(1), "ray.workers[1]");
    let again: spec::Spec = serde_json::from_value(serde_json::to_value(&spec).unwrap()).unwrap();
    assert_eq!(again, spec);
    // A single group is written to the state as it was before there were several.
    let one = read("name: demo\nray: {workers: {count: 2}}\n").unwrap().spec;
    let written = serde_json::to_value(&one.ray.workers).unwrap();
    assert_eq!((&written["count"], written.get("name"), written.get("hosts")), (&json!(2), None, None));
}

#[test]
fn a_key_without_a_value_means_the_default() {
    let spec = read("name: demo\nray:\n  workers:\n    count:\n    memory: ~\n").unwrap().spec;
    let workers = &spec.ray.workers.groups()[0];
    assert_eq!((workers.count, workers.memory), (None, None));
}

#[test]
fn errors_found_later_also_show_their_line() {
    let places = read("name: demo\nhosts:\n  - node: a\nray:\n  workers: {cpus: 64}\n").unwrap().places;
    let error = places.error("ray.workers.cpus", "64 is more than the 2 of this machine").hint("write `cpus: 1`");
    let shown = "  cluster.yaml:5:19: ray.workers.cpus: 64 is more than the 2 of this machine\n     \
                 5 |   workers: {cpus: 64}\n       |                   ^^";
    assert_eq!(error.shown_snippet(), Some(shown));
    assert_eq!(error.kind(), ErrorKind::Spec);
    assert_eq!(places.position("hosts[0].node"), (3, 11));
    assert_eq!(places.position("hosts[0]"), (3, 5));
    // What the file does not have is shown at the nearest thing above it.
    assert_eq!(places.position("ray.workers.count"), (5, 3));
    assert_eq!(places.position("timeouts.start"), (1, 1));
    assert_eq!(places.file(), "cluster.yaml");
}

fn load(path: &Path) -> Error {
    let Err(error) = spec::load(path, spec::Allowed::default(), &gpucl::providers::find) else {
        unreachable!("it was read: {}", path.display())
    };
    error
}

#[test]
fn a_missing_file_is_reported_with_an_example() {
    let env = TestEnv::new();
    let error = load(&env.work().join("none.yaml"));
    assert_eq!(error.kind(), ErrorKind::Spec);
    assert_eq!(error.causes(), ["there is no such file"]);
    assert!(error.hints()[0].starts_with("create one: echo 'name: demo' > "), "{:?}", error.hints());
}

#[test]
fn a_folder_is_no_spec() {
    let env = TestEnv::new();
    let error = load(&env.work());
    assert_eq!(error.causes(), ["it is a folder"]);
    assert!(error.hints()[0].ends_with("/work/cluster.yaml"), "{:?}", error.hints());
}

#[test]
fn a_file_that_is_not_utf_8_is_reported_with_the_place() {
    let env = TestEnv::new();
    let path = env.work().join("cluster.yaml");
    fs_err::write(&path, b"name: demo\nenvironment: {A: \"\xe9t\xe9\"}\n").unwrap();
    let error = load(&path);
    assert!(error.causes()[0].ends_with("cluster.yaml:2:19: is not UTF-8"), "{:?}", error.causes());
    assert_eq!(error.hints(), ["save the file as UTF-8 and try again"]);
}

#[test]
fn a_huge_file_is_not_read_to_its_end() {
    let env = TestEnv::new();
    let path = env.work().join("cluster.yaml");
    std::fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
    assert_eq!(load(&path).causes(), ["it is larger than 1 MiB: too large for a spec"]);
}

/// It would be waited for, or read, without end.
#[test]
fn a_pipe_and_a_device_are_no_spec() {
    let env = TestEnv::new();
    let pipe = env.work().join("cluster.yaml");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    for path in [pipe.as_path(), Path::new("/dev/zero")] {
        let error = load(path);
        assert!(error.causes()[0].contains("only regular files are read"), "{:?}", error.causes());
    }
}

/// Both readers of YAML read it and see the same, or [`spec::load`] would refuse it.
#[test]
fn every_example_is_read() {
    let mut read = 0;
    for entry in std::fs::read_dir(project("examples")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let loaded = spec::load(&path, spec::Allowed::default(), &gpucl::providers::find)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let places = loaded.places;
            assert_eq!(places.position("name").1, 7, "{}: `name` is not at the margin", path.display());
            read += 1;
        }
    }
    assert!(read > 0, "no example was found");
}

#[test]
fn the_smallest_example_fits_two_cores() {
    let text = fs_err::read_to_string(project("examples/local.yaml")).unwrap();
    let spec = read(&text).unwrap().spec;
    let workers = &spec.ray.workers.groups()[0];
    assert_eq!((spec.ray.head.cpus, workers.count, workers.cpus), (0, Some(2), Some(1)));
}

#[test]
fn hosts_without_a_worker_are_named() {
    let notes = |workers: &str| {
        let text = format!("name: demo\nprovider: {{name: hall}}\nhosts: [{{node: a}}, {{node: b}}]\n{workers}");
        read(&text).unwrap().spec.worker_notes()
    };
    let idle = "host-1 runs no worker: `ray: {workers: {per: host}}` has one on each host, with its GPUs";
    assert_eq!(notes(""), [idle]);
    assert_eq!(notes("ray: {workers: {count: 3, hosts: [0]}}\n"), [idle]);
    assert_eq!(notes("ray: {workers: {per: host, hosts: [a]}}\n"), [idle]);
    assert_eq!(notes("ray: {workers: {count: 2}}\n"), Vec::<String>::new());
    assert_eq!(notes("ray: {workers: {per: host}}\n"), Vec::<String>::new());
    assert_eq!(notes("ray: {workers: {count: 1, hosts: [1]}}\n"), Vec::<String>::new());
}
