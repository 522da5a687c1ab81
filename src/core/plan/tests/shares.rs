//! What a worker has of its host where the spec gives no numbers.

use super::*;

/// Hosts with this many CPUs, 64 GiB and no GPUs.
fn hosts(cpus: &[u32]) -> Vec<(Key, Machine)> {
    let machine = |cpus: u32| Machine { cpus, memory: 64 << 30, ..Machine::default() };
    cpus.iter().enumerate().map(|(index, cpus)| (Key::host(index), machine(*cpus))).collect()
}

/// The CPUs of each worker.
#[track_caller]
fn cpus(text: &str, machines: &[(Key, Machine)]) -> Vec<u32> {
    let nodes = desired(&spec(text), machines).unwrap_or_else(|why| panic!("{text}: {why:?}"));
    nodes[1..].iter().map(|node| node.cpus).collect()
}

/// The GiB for tasks of each worker, rounded down.
fn memory(text: &str, machines: &[(Key, Machine)]) -> Vec<u64> {
    desired(&spec(text), machines).unwrap()[1..].iter().map(|node| node.memory >> 30).collect()
}

#[test]
fn workers_share_the_cpus_that_services_leave() {
    for (cpus_there, workers, each) in [
        (1, 1, 1),
        (2, 1, 2),
        (2, 2, 1),
        (4, 1, 4),
        (7, 1, 7),
        (8, 1, 7),
        (8, 2, 3),
        (16, 2, 7),
        (32, 2, 14),
        (64, 1, 60),
        (64, 2, 30),
        (64, 7, 8),
        (128, 8, 15),
    ] {
        let text = format!("{{name: a, runtime: docker, ray: {{workers: {{count: {workers}}}}}}}");
        assert_eq!(cpus(&text, &hosts(&[cpus_there])), vec![each; workers], "{workers} on {cpus_there} CPUs");
    }
}

#[test]
fn nothing_is_left_to_services_where_none_run() {
    let none = "services: {object_store: false, prometheus: false, jupyter: false}";
    for (text, each) in [
        ("{name: a}".to_owned(), vec![64]),
        ("{name: a, ray: {workers: {count: 2}}}".to_owned(), vec![32, 32]),
        (format!("{{name: a, runtime: docker, {none}}}"), vec![64]),
        (format!("{{name: a, runtime: docker, {none}, compose: [mine.yaml]}}"), vec![60]),
        ("{name: a, runtime: docker, services: {prometheus: false, jupyter: false}}".to_owned(), vec![60]),
    ] {
        assert_eq!(cpus(&text, &hosts(&[64])), each, "{text}");
    }
    assert_eq!(
        cpus("{name: a, ray: {workers: {count: 2}}}", &hosts(&[256])),
        [64, 64],
        "as many as processes have ports"
    );
    let external = "{name: a, runtime: docker, services: {prometheus: false, jupyter: false, object_store: {external: \
                    {endpoint: 'https://s3.example.org', credentials_file: keys}}}}";
    assert_eq!(cpus(external, &hosts(&[64])), [64], "a store that is not on the host");
    let two = "{name: a, runtime: docker, hosts: [{}, {}], ray: {workers: {per: host}}}";
    assert_eq!(cpus(two, &hosts(&[64, 64])), [60, 64], "services run on the head's host only");
}

#[test]
fn what_the_spec_gives_is_taken_first() {
    for (ray, each) in [
        ("workers: {count: 2, cpus: 5}", vec![5, 5]),
        ("workers: {count: 1, cpus: 64}", vec![64]),
        ("workers: {count: 2, cpus: 0}", vec![0, 0]),
        ("head: {cpus: 4}, workers: {count: 2}", vec![28, 28]),
        ("workers: [{name: a, cpus: 40}, {name: b, count: 2}]", vec![40, 10, 10]),
        ("workers: [{name: a, count: 0}, {name: b, count: 2}]", vec![30, 30]),
    ] {
        let text = format!("{{name: a, runtime: docker, ray: {{{ray}}}}}");
        assert_eq!(cpus(&text, &hosts(&[64])), each, "{ray}");
    }
}

#[test]
fn a_worker_has_one_cpu_at_least_and_more_than_a_host_has_is_refused() {
    assert_eq!(cpus("{name: a, ray: {workers: {count: 8}}}", &hosts(&[8])), [1; 8]);
    let beside = "{name: a, ray: {workers: [{name: a, cpus: 8}, {name: b}]}}";
    let refused = |text: &str| desired(&spec(text), &hosts(&[8])).unwrap_err();
    assert_eq!(refused("{name: a, ray: {workers: {count: 9}}}").0, "ray.workers.cpus");
    assert_eq!(refused(beside).0, "ray.workers[1].cpus");
    assert!(refused(beside).1.starts_with("the nodes need 9 CPUs, but host-0 has 8"), "{:?}", refused(beside));
    let over = "{name: a, oversubscribe: true, ray: {workers: {count: 9}}}";
    assert_eq!(cpus(over, &hosts(&[8])), [1; 9]);
}

#[test]
fn memory_follows_the_cpus_and_all_of_it_is_half_of_the_host() {
    for (ray, each) in [
        ("workers: {count: 1}", vec![32]),
        ("workers: {count: 2}", vec![16, 16]),
        ("workers: {count: 4}", vec![8; 4]),
        ("workers: {count: 2, cpus: 8}", vec![4, 4]),
        ("workers: {count: 2, memory: 3GiB}", vec![3, 3]),
        ("workers: {count: 1, cpus: 0}", vec![0]),
        ("workers: [{name: a, cpus: 48}, {name: b, count: 2}]", vec![24, 4, 4]),
    ] {
        assert_eq!(memory(&format!("{{name: a, ray: {{{ray}}}}}"), &hosts(&[64])), each, "{ray}");
    }
    let over = "{name: a, oversubscribe: true, ray: {workers: {count: 1, cpus: 200}}}";
    assert_eq!(memory(over, &hosts(&[64])), [32], "never more than that");
    let zero = desired(&spec("{name: a, ray: {workers: {count: 1, cpus: 0}}}"), &hosts(&[64])).unwrap();
    assert_eq!(zero[1].memory, 512 << 20, "as with one CPU: no node is without memory");
}

#[test]
fn one_more_worker_changes_no_other_where_the_spec_gives_their_cpus() {
    let nodes = |workers: &str| {
        let text = format!("{{name: a, runtime: docker, ray: {{workers: {workers}}}}}");
        desired(&spec(&text), &hosts(&[64])).unwrap()
    };
    assert_eq!(nodes("{count: 2, cpus: 8}"), nodes("{count: 3, cpus: 8}")[..3]);
    // A share becomes smaller: all of them are started anew.
    assert_ne!(nodes("{count: 2}")[1], nodes("{count: 3}")[1]);
    assert_eq!(nodes("{count: 2}")[0], nodes("{count: 3}")[0], "the head stays");
}
