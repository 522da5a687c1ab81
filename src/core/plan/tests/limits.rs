//! What a plan promises of a host whose login or container is limited.

use super::*;
use crate::playbook::{Facts, Limit, LimitOf};
use crate::provider::Runtime;

/// A host with 8 CPUs, 16 GiB, and this much shared memory, whose logins have 2 CPUs and 3 GiB.
fn limited(shm_size: u64) -> Facts {
    let limit = |of, most, by: &str| Limit { of, most, whole: false, by: by.to_owned() };
    let limits =
        vec![limit(LimitOf::Memory, 3 << 30, "the cgroup /gpucl-trial"), limit(LimitOf::Cpus, 2, "the CPU affinity")];
    Facts { cpus: 8, memory: 16 << 30, shm_size, limits, ..Facts::default() }
}

fn on(facts: &Facts, runtime: Runtime) -> Vec<(Key, Machine)> {
    vec![(Key::host(0), Machine::of(facts, runtime))]
}

#[test]
fn processes_have_what_the_cgroup_leaves_and_containers_what_the_machine_has() {
    let facts = limited(8 << 30);
    let native = on(&facts, Runtime::Native);
    let nodes = desired(&spec("{name: a}"), &native).unwrap();
    assert_eq!((nodes[0].memory, nodes[1].memory, nodes[1].cpus), (3 << 29, 3 << 29, 2));
    assert_eq!(
        limits(&native),
        ["host-0 has 3.0 GiB of memory (limit of the cgroup /gpucl-trial) and 2 CPUs (limit of the CPU affinity) for \
          the cluster"]
    );
    let docker = on(&facts, Runtime::Docker);
    let nodes = desired(&spec("{name: a, runtime: docker}"), &docker).unwrap();
    assert_eq!((nodes[0].memory, limits(&docker).len(), docker[0].1.cpus), (8 << 30, 0, 8));

    let refused = |text: &str| desired(&spec(text), &native).unwrap_err();
    let (path, sentence) = refused("{name: a, ray: {workers: {count: 3}}}");
    assert_eq!(path, "ray.workers.cpus");
    assert!(sentence.contains("host-0 has 2 (limit of the CPU affinity)"), "{sentence}");
    let (path, sentence) = refused("{name: a, ray: {workers: {object_store_memory: 4GiB}}}");
    assert_eq!(path, "ray.workers.object_store_memory");
    assert!(sentence.contains("host-0 has 3.0 GiB (limit of the cgroup /gpucl-trial)"), "{sentence}");
}

#[test]
fn object_stores_fit_into_the_shared_memory() {
    let stores = |facts: &Facts, text: &str| {
        let machines = on(facts, Runtime::Native);
        let nodes = desired(&spec(text), &machines).unwrap();
        (nodes[1].object_store_memory >> 20, small_shared_memory(&machines, &nodes))
    };
    let facts = |shm_size: u64| Facts { cpus: 8, memory: 64 << 30, shm_size, ..Facts::default() };
    let one = "{name: a}";
    // As much as half of the memory, which is usual, makes no difference; nor does a host that does not say.
    assert_eq!(stores(&facts(32 << 30), one), (1966, vec![]));
    assert_eq!(stores(&facts(0), one), (1966, vec![]));
    assert_eq!(stores(&facts(2 << 30), one), (194, vec![]));
    // Docker's default holds none.
    let (store, warnings) = stores(&facts(64 << 20), one);
    assert_eq!((store, warnings.len()), (75, 1));
    let slow = "/dev/shm of host-0 holds 64.0 MiB, and its nodes have 150.0 MiB of object stores: Ray keeps such a";
    assert!(warnings[0].starts_with(slow) && warnings[0].contains("--shm-size"), "{warnings:?}");
    let (_, warnings) = stores(&facts(1 << 30), "{name: a, ray: {workers: {count: 2, object_store_memory: 600MiB}}}");
    assert!(warnings[0].contains("a node ends when objects fill it"), "{warnings:?}");

    // Ray itself refuses this one.
    let large = "{name: a, ray: {workers: {object_store_memory: 12GiB}}}";
    let (path, sentence) = desired(&spec(large), &on(&facts(1 << 30), Runtime::Native)).unwrap_err();
    assert_eq!(path, "ray.workers.object_store_memory");
    assert!(sentence.contains("/dev/shm of host-0 holds 1.0 GiB"), "{sentence}");
    assert!(desired(&spec(large), &on(&facts(13 << 30), Runtime::Native)).is_ok());
    assert!(desired(&spec(large), &on(&facts(1 << 30), Runtime::Docker)).is_ok(), "a container has its own");
    let slow = "{name: a, environment: {RAY_OBJECT_STORE_ALLOW_SLOW_STORAGE: '1'}, ray: {workers: \
                {object_store_memory: 12GiB}}}";
    assert!(desired(&spec(slow), &on(&facts(1 << 30), Runtime::Native)).is_ok());
}
