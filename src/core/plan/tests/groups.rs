//! Groups of workers of different size.

use super::*;
use crate::spec::GROUP_LABEL;

/// Two hosts: 8 CPUs and 2 GPUs each.
fn two() -> Vec<(Key, Machine)> {
    (0..2)
        .map(|index| (Key::host(index), Machine { cpus: 8, memory: 16 << 30, gpus: 2, ..Machine::default() }))
        .collect()
}

fn workers(groups: &str, machines: &[(Key, Machine)]) -> Vec<NodeSpec> {
    let text = format!("{{name: demo, hosts: [{{node: a}}, {{node: b}}], ray: {{workers: {groups}}}}}");
    desired(&spec(&text), machines).unwrap_or_else(|why| panic!("{groups}: {why:?}")).split_off(1)
}

/// Where each worker runs, as text: `worker-0 of big on host-0: 2 CPUs, GPUs 0 to 1`.
fn shown(nodes: &[NodeSpec]) -> Vec<String> {
    let shown = |node: &NodeSpec| {
        let group = node.group().map(|group| format!(" of {group}")).unwrap_or_default();
        let gpus = node.first_gpu.map(|first| format!(", {} GPUs from {first}", node.gpus)).unwrap_or_default();
        let (name, host) = (node.key.display_name(), node.host.display_name());
        format!("{name}{group} on {host}: {} CPUs{gpus}", node.cpus)
    };
    nodes.iter().map(shown).collect()
}

#[test]
fn workers_are_numbered_over_all_groups_in_order() {
    let groups = "[{name: big, count: 1, cpus: 4, gpus: 2}, {name: small, count: 3, cpus: 1}]";
    assert_eq!(
        shown(&workers(groups, &two())),
        [
            "worker-0 of big on host-0: 4 CPUs, 2 GPUs from 0",
            "worker-1 of small on host-0: 1 CPUs",
            "worker-2 of small on host-1: 1 CPUs",
            "worker-3 of small on host-0: 1 CPUs",
        ]
    );
}

#[test]
fn a_group_runs_on_its_own_hosts() {
    for hosts in ["[1]", "[b]", "[host-1]", "[host1]"] {
        let groups = format!("[{{name: big, per: gpu, hosts: [a]}}, {{name: small, count: 2, hosts: {hosts}}}]");
        assert_eq!(
            shown(&workers(&groups, &two())),
            [
                "worker-0 of big on host-0: 4 CPUs, 1 GPUs from 0",
                "worker-1 of big on host-0: 4 CPUs, 1 GPUs from 1",
                "worker-2 of small on host-1: 4 CPUs",
                "worker-3 of small on host-1: 4 CPUs",
            ],
            "{hosts}"
        );
    }
    let one = workers("{per: host, hosts: [1]}", &two());
    assert_eq!(shown(&one), ["worker-0 on host-1: 8 CPUs, 2 GPUs from 0"]);
}

#[test]
fn one_group_as_a_map_and_as_a_list_is_the_same() {
    let map = workers("{count: 2, gpus: 1, labels: {zone: a}}", &two());
    assert_eq!(map, workers("[{count: 2, gpus: 1, labels: {zone: a}}]", &two()));
    assert_eq!(map[0].group(), None);
    assert_eq!(map[0].labels, BTreeMap::from([("zone".to_owned(), "a".to_owned())]), "as before there were groups");
    let named = workers("{name: big, count: 2, labels: {zone: a}}", &two());
    assert_eq!((named[1].group(), named[1].labels[GROUP_LABEL].as_str()), (Some("big"), "big"));
}

#[test]
fn what_a_host_lacks_is_refused_at_the_last_group_that_takes_it() {
    let refused = |groups: &str| {
        let text = format!("{{name: demo, hosts: [{{node: a}}, {{node: b}}], ray: {{workers: {groups}}}}}");
        desired(&spec(&text), &two()).unwrap_err()
    };
    let gpus = "[{name: a, per: gpu}, {name: b, count: 1, gpus: 1, hosts: [1]}, {name: c}]";
    assert_eq!(refused(gpus).0, "ray.workers[1].gpus");
    assert!(refused(gpus).1.starts_with("the workers need 3 GPUs, but host-1 has 2"), "{:?}", refused(gpus));
    assert_eq!(
        refused("[{name: a, per: host}, {name: b, cpus: 7, hosts: [b]}, {name: c, cpus: 8}]").0,
        "ray.workers[2].cpus"
    );
    assert_eq!(
        refused("[{name: a, object_store_memory: 9GiB}, {name: b, object_store_memory: 9GiB}]").0,
        "ray.workers[1].object_store_memory"
    );
    let bare: Vec<(Key, Machine)> = two().into_iter().map(|(key, of)| (key, Machine { gpus: 0, ..of })).collect();
    let text = "{name: demo, hosts: [{}, {}], ray: {workers: [{name: a}, {name: b, per: gpu}]}}";
    assert_eq!(desired(&spec(text), &bare).unwrap_err().0, "ray.workers[1].per");
}

const GROUPS: &str = "{name: demo, ray: {workers: [{name: a, count: 2, cpus: 1}, {name: b, count: 2, cpus: 2}]}}";

#[test]
fn a_change_to_one_group_restarts_its_workers_only() {
    let (known, observed) = after(&wanted(GROUPS));
    plans(
        Goal::Up(wanted(&GROUPS.replace("cpus: 1}", "cpus: 1, labels: {zone: x}}"))),
        &known,
        &observed,
        "#1 project-0, deploy: the spec has changed for it
    keep head: it is as it should be
    restart worker-0: the spec has changed for it
    restart worker-1: the spec has changed for it
    keep worker-2: it is as it should be
    keep worker-3: it is as it should be",
    );
}

#[test]
fn one_more_worker_of_the_last_group_disturbs_no_other_node() {
    let (known, observed) = after(&wanted(GROUPS));
    plans(
        Goal::Up(wanted(&GROUPS.replace("count: 2, cpus: 2", "count: 3, cpus: 2"))),
        &known,
        &observed,
        "#1 project-0, deploy: the spec has changed for it
    keep head: it is as it should be
    keep worker-0: it is as it should be
    keep worker-1: it is as it should be
    keep worker-2: it is as it should be
    keep worker-3: it is as it should be
    start worker-4: it does not run yet",
    );
}

/// Numbers go on over all groups, so that those of later groups move.
#[test]
fn one_more_worker_of_an_earlier_group_takes_the_number_of_a_later_one() {
    let (known, observed) = after(&wanted(GROUPS));
    plans(
        Goal::Up(wanted(&GROUPS.replace("count: 2, cpus: 1", "count: 3, cpus: 1"))),
        &known,
        &observed,
        "#1 project-0, deploy: the spec has changed for it
    keep head: it is as it should be
    keep worker-0: it is as it should be
    keep worker-1: it is as it should be
    restart worker-2: the spec has changed for it
    keep worker-3: it is as it should be
    start worker-4: it does not run yet",
    );
}
