//! Plans compared by their text.

mod projects;

use std::collections::BTreeMap;

use super::*;
use crate::name::{Key, Scope};
use crate::provider::{ObservedResource, ResourceKind, ResourceRequest};
use crate::spec::Spec;
use crate::state::{ClusterState, ItemKind, Record};

fn spec(text: &str) -> Spec {
    serde_json::from_value(serde_yaml::from_str(text).unwrap()).unwrap()
}

fn machines() -> Vec<(Key, Machine)> {
    vec![(Key::host(0), Machine { cpus: 8, memory: 16 << 30, gpus: 2 })]
}

fn wanted(text: &str) -> Desired {
    Desired {
        resources: vec![host()],
        preparations: vec![Preparation { host: Key::host(0), digest: "p1".to_owned(), behind: None }],
        guards: Vec::new(),
        apart: false,
        agent: Some("0.1.0".to_owned()),
        nodes: desired(&spec(text), &machines()).unwrap(),
        projects: Vec::new(),
    }
}

fn host() -> ResourceRequest {
    ResourceRequest {
        key: Key::host(0),
        kind: ResourceKind("host".to_owned()),
        settings: serde_json::Value::Null,
        needs: Vec::new(),
        is_host: true,
        found: serde_json::Value::Null,
        price: None,
        adopted: None,
    }
}

fn nothing_known() -> ClusterState {
    let scope = Scope { owner: "abcd1234".parse().unwrap(), cluster: "demo".parse().unwrap() };
    ClusterState::new(&scope, jiff::Timestamp::UNIX_EPOCH)
}

/// What there is after all of this was brought up.
fn after(wanted: &Desired) -> (ClusterState, Observed) {
    let mut known = nothing_known();
    let mut observed = Observed::default();
    let at = jiff::Timestamp::UNIX_EPOCH;
    let mut know = |key: &Key, kind: ItemKind, digest: &str, id: &str| {
        known.apply(Record::Requested { key: key.clone(), kind, digest: digest.to_owned() }, at);
        known.apply(Record::Exists { key: key.clone(), id: id.to_owned() }, at);
    };
    for request in &wanted.resources {
        know(&request.key, ItemKind::Resource("host".to_owned()), &request.digest(), "h-1");
        observed.resources.push(ObservedResource {
            key: request.key.clone(),
            kind: request.kind.clone(),
            id: "h-1".to_owned(),
            usable: true,
            coming: false,
            adopted: false,
            until: None,
            detail: String::new(),
        });
        observed.prepared.insert(request.key.clone(), "p1".to_owned());
    }
    let item = |key: &Key, digest: &str| ObservedItem {
        key: key.clone(),
        id: format!("7:{key}:boot"),
        digest: Some(digest.to_owned()),
        health: Health::Good,
    };
    know(&Key::agent(), ItemKind::Agent, "0.1.0", "7:agent:boot");
    observed.agents.push(item(&Key::agent(), "0.1.0"));
    for node in &wanted.nodes {
        know(&node.key, ItemKind::Node, &node.digest(), &format!("7:{}:boot", node.key));
        observed.nodes.push(item(&node.key, &node.digest()));
    }
    (known, observed)
}

#[track_caller]
fn plans(goal: Goal, known: &ClusterState, observed: &Observed, text: &str) {
    assert_eq!(reconcile(&goal, known, observed).plan.to_string().trim(), text.trim());
}

const TWO: &str = "{name: demo, ray: {workers: {count: 2}}}";

#[test]
fn from_nothing_everything_is_made_in_order() {
    plans(
        Goal::Up(wanted(TWO)),
        &nothing_known(),
        &Observed::default(),
        "#1 host-0, acquire: there is none yet
[1] -> #2 host-0, prepare: it is new
#3 agent, start agent: it does not run yet
[1,2,3] -> #4 head, start node: it does not run yet
[1,2,3,4] -> #5 worker-0, start node: it does not run yet
[1,2,3,4] -> #6 worker-1, start node: it does not run yet",
    );
}

#[test]
fn what_is_as_it_should_be_is_left_alone() {
    let wanted = wanted(TWO);
    let (known, observed) = after(&wanted);
    let outcome = reconcile(&Goal::Up(wanted), &known, &observed);
    assert_eq!(outcome, Outcome::default(), "nothing to do, nothing to write down");
}

#[test]
fn one_more_worker_is_one_more_worker() {
    let (known, observed) = after(&wanted(TWO));
    let more = wanted("{name: demo, ray: {workers: {count: 3}}}");
    plans(Goal::Up(more), &known, &observed, "#1 worker-2, start node: it does not run yet");
}

#[test]
fn one_fewer_worker_is_one_fewer_worker() {
    let (known, observed) = after(&wanted(TWO));
    let fewer = wanted("{name: demo, ray: {workers: {count: 1}}}");
    plans(Goal::Up(fewer), &known, &observed, "#1 worker-1, stop node: not in the spec");
}

#[test]
fn changed_workers_are_started_anew_and_the_head_goes_on() {
    let (known, observed) = after(&wanted(TWO));
    plans(
        Goal::Up(wanted("{name: demo, ray: {workers: {count: 2, cpus: 2}}}")),
        &known,
        &observed,
        "#1 worker-0, stop node: the spec has changed for it
#2 worker-1, stop node: the spec has changed for it
[1] -> #3 worker-0, start node: it is started anew
[2] -> #4 worker-1, start node: it is started anew",
    );
}

#[test]
fn a_changed_head_takes_its_workers_with_it() {
    let (known, observed) = after(&wanted(TWO));
    plans(
        Goal::Up(wanted("{name: demo, ray: {head: {cpus: 1}, workers: {count: 2}}}")),
        &known,
        &observed,
        "#1 head, stop node: the spec has changed for it
#2 worker-0, stop node: its head is started anew
#3 worker-1, stop node: its head is started anew
[1,2,3] -> #4 head, start node: it is started anew
[2,4] -> #5 worker-0, start node: it is started anew
[3,4] -> #6 worker-1, start node: it is started anew",
    );
}

#[test]
fn a_dead_agent_is_started_and_nothing_else() {
    let wanted = wanted(TWO);
    let (known, mut observed) = after(&wanted);
    observed.agents.clear();
    plans(Goal::Up(wanted), &known, &observed, "#1 agent, start agent: it does not run any more");
}

#[test]
fn what_a_dead_node_left_is_ended_before_it_is_started_again() {
    let wanted = wanted(TWO);
    let (known, mut observed) = after(&wanted);
    observed.nodes[1].health = Health::Broken("it ended and left 3 processes".to_owned());
    plans(
        Goal::Up(wanted),
        &known,
        &observed,
        "#1 worker-0, stop node: it ended and left 3 processes
[1] -> #2 worker-0, start node: it is started anew",
    );
}

#[test]
fn after_a_restart_of_the_machine_what_is_gone_is_made_again_and_its_host_stays() {
    let wanted = wanted(TWO);
    let (known, mut observed) = after(&wanted);
    observed.nodes.clear();
    observed.agents.clear();
    plans(
        Goal::Up(wanted),
        &known,
        &observed,
        "#1 agent, start agent: it does not run any more
[1] -> #2 head, start node: it does not run any more
[1,2] -> #3 worker-0, start node: it does not run any more
[1,2] -> #4 worker-1, start node: it does not run any more",
    );
}

#[test]
fn what_a_crash_left_out_of_the_journal_is_adopted() {
    let wanted = wanted(TWO);
    let (_, observed) = after(&wanted);
    let outcome = reconcile(&Goal::Up(wanted), &nothing_known(), &observed);
    assert!(outcome.plan.is_empty(), "{}", outcome.plan);
    assert_eq!(outcome.adopted.len(), 5, "host, agent, head and two workers: {:?}", outcome.adopted);
}

#[test]
fn down_ends_processes_before_their_agent_and_their_host() {
    let (known, observed) = after(&wanted("{name: demo}"));
    plans(
        Goal::Down,
        &known,
        &observed,
        "#1 head, stop node: the cluster is taken down
#2 worker-0, stop node: the cluster is taken down
[1,2] -> #3 agent, stop agent: the cluster is taken down
[1,2,3] -> #4 host-0, release: the cluster is taken down",
    );
}

#[test]
fn stop_keeps_the_host() {
    let (known, observed) = after(&wanted("{name: demo}"));
    plans(
        Goal::Stop,
        &known,
        &observed,
        "#1 head, stop node: the cluster is stopped
#2 worker-0, stop node: the cluster is stopped
[1,2] -> #3 agent, stop agent: the cluster is stopped",
    );
}

#[test]
fn of_two_hosts_under_one_tag_the_known_one_stays() {
    let wanted = wanted("{name: demo}");
    let (known, mut observed) = after(&wanted);
    let mut second = observed.resources[0].clone();
    second.id = "h-2".to_owned();
    observed.resources.insert(0, second);
    let outcome = reconcile(&Goal::Up(wanted), &known, &observed);
    assert_eq!(outcome.plan.to_string(), "#1 host-0, release: there are several of it\n");
    assert!(matches!(&outcome.plan.operations[0].action, Action::Release { resource } if resource.id == "h-2"));
}

#[test]
fn promises_that_a_host_cannot_keep_are_refused_with_their_field() {
    let impossible = |text: &str| desired(&spec(text), &machines()).unwrap_err().0;
    assert_eq!(impossible("{name: a, ray: {workers: {count: 9}}}"), "ray.workers.cpus");
    assert_eq!(impossible("{name: a, ray: {head: {cpus: 9}}}"), "ray.head.cpus");
    assert_eq!(impossible("{name: a, ray: {workers: {count: 3, gpus: 1}}}"), "ray.workers.gpus");
    let store = "{name: a, ray: {workers: {count: 2, object_store_memory: 9GiB}}}";
    assert_eq!(impossible(store), "ray.workers.object_store_memory");
    let over = "{name: a, oversubscribe: true, ray: {workers: {count: 9}}}";
    assert_eq!(desired(&spec(over), &machines()).unwrap().len(), 10);
}

#[test]
fn workers_per_gpu_own_one_each_and_declared_ones_own_none() {
    let proven = desired(&spec("{name: a, ray: {workers: {per: gpu}}}"), &machines()).unwrap();
    let owned: Vec<_> = proven.iter().map(|node| (node.gpus, node.first_gpu)).collect();
    assert_eq!(owned, [(0, None), (1, Some(0)), (1, Some(1))]);
    let declared =
        desired(&spec("{name: a, gpu: declared, ray: {workers: {count: 4, gpus: 1}}}"), &machines()).unwrap();
    assert!(declared.iter().all(|node| node.first_gpu.is_none()));
    let per_host = desired(&spec("{name: a, ray: {workers: {per: host}}}"), &machines()).unwrap();
    assert_eq!((per_host.len(), per_host[1].gpus), (2, 2));
    let empty = BTreeMap::<String, f64>::new();
    assert_eq!(per_host[1].resources, empty);
}
