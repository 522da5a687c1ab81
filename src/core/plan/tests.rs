//! Plans compared by their text.

mod groups;
mod limits;
mod projects;
mod shares;

use std::collections::BTreeMap;

use super::*;
use crate::name::{Key, Scope};
use crate::provider::{Finding, ObservedResource, ResourceKind, ResourceRequest, ResourceState};
use crate::spec::{NodeSpec, Spec};
use crate::state::{ClusterState, ItemKind, Notes, ProjectNotes, Record};

fn spec(text: &str) -> Spec {
    serde_json::from_value(serde_yaml::from_str(text).unwrap()).unwrap()
}

fn machines() -> Vec<(Key, Machine)> {
    vec![(Key::host(0), Machine { cpus: 8, memory: 16 << 30, gpus: 2, ..Machine::default() })]
}

fn wanted(text: &str) -> Desired {
    let nodes = desired(&spec(text), &machines()).unwrap();
    let request = |node: &NodeSpec| NodeRequest { key: node.key.clone(), digest: Some(node.digest()) };
    Desired {
        resources: vec![host()],
        preparations: vec![Preparation { host: Key::host(0), digest: "p1".to_owned(), setup: None, behind: None }],
        projects: vec![ProjectRequest {
            key: Key::project(0),
            host: Key::host(0),
            digest: Some(crate::util::digest::of_json(&nodes)),
            nodes: nodes.iter().map(request).collect(),
        }],
        independent_hosts: true,
        ..Desired::default()
    }
}

fn host() -> ResourceRequest {
    ResourceRequest {
        key: Key::host(0),
        kind: ResourceKind("host".to_owned()),
        settings: serde_json::Value::Null,
        needs: Vec::new(),
        is_host: true,
        found: Finding::default(),
        adopted: None,
    }
}

fn nothing_known() -> ClusterState {
    let scope = Scope { owner: "abcd1234".parse().unwrap(), cluster: "demo".parse().unwrap() };
    ClusterState::new(&scope, jiff::Timestamp::UNIX_EPOCH)
}

/// The state and observation after all of this was brought up.
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
            digest: None,
            key: request.key.clone(),
            kind: request.kind.clone(),
            id: "h-1".to_owned(),
            state: ResourceState::Usable,
            adopted: false,
            until: None,
            detail: String::new(),
        });
        observed.prepared.insert(request.key.clone(), "p1".to_owned());
    }
    for wanted in &wanted.projects {
        know(&wanted.key, ItemKind::Project, "", "tag");
        observed.projects.push(observed_project(wanted));
    }
    (known, observed)
}

/// An observed project that matches the request.
fn observed_project(wanted: &ProjectRequest) -> ObservedProject {
    let node = |node: &NodeRequest| ObservedNode { key: node.key.clone(), running: true, digest: node.digest.clone() };
    ObservedProject {
        key: wanted.key.clone(),
        host: wanted.host.clone(),
        id: "tag".to_owned(),
        digest: wanted.digest.clone(),
        health: Health::Good,
        running: true,
        nodes: wanted.nodes.iter().map(node).collect(),
        remains: vec![Remnant::Folder("/x".to_owned())],
    }
}

#[track_caller]
fn plans(goal: Goal, known: &ClusterState, observed: &Observed, text: &str) {
    assert_eq!(reconcile(&goal, known, observed).plan.to_string().trim(), text.trim());
}

const TWO: &str = "{name: demo, ray: {workers: {count: 2, cpus: 1}}}";

#[test]
fn from_nothing_everything_is_created_in_order() {
    plans(
        Goal::Up(wanted(TWO)),
        &nothing_known(),
        &Observed::default(),
        "#1 host-0, acquire: there is none yet
[1] -> #2 host-0, prepare: it is new
[1,2] -> #3 project-0, deploy: it does not run yet
    start head: it does not run yet
    start worker-0: it does not run yet
    start worker-1: it does not run yet",
    );
}

#[test]
fn a_matching_cluster_is_left_alone() {
    let wanted = wanted(TWO);
    let (known, observed) = after(&wanted);
    let outcome = reconcile(&Goal::Up(wanted), &known, &observed);
    assert_eq!(outcome, Outcome::default(), "nothing to do, nothing to record");
}

#[test]
fn one_more_worker_disturbs_no_other_node() {
    let (known, observed) = after(&wanted(TWO));
    let more = wanted("{name: demo, ray: {workers: {count: 3, cpus: 1}}}");
    plans(
        Goal::Up(more),
        &known,
        &observed,
        "#1 project-0, deploy: the spec has changed for it
    keep head: it is as it should be
    keep worker-0: it is as it should be
    keep worker-1: it is as it should be
    start worker-2: it does not run yet",
    );
}

#[test]
fn one_fewer_worker_disturbs_no_other_node() {
    let (known, observed) = after(&wanted(TWO));
    let fewer = wanted("{name: demo, ray: {workers: {count: 1, cpus: 1}}}");
    plans(
        Goal::Up(fewer),
        &known,
        &observed,
        "#1 project-0, deploy: the spec has changed for it
    keep head: it is as it should be
    keep worker-0: it is as it should be
    stop worker-1: not in the spec",
    );
}

#[test]
fn changed_workers_are_restarted_and_the_head_is_kept() {
    let (known, observed) = after(&wanted(TWO));
    plans(
        Goal::Up(wanted("{name: demo, ray: {workers: {count: 2, cpus: 2}}}")),
        &known,
        &observed,
        "#1 project-0, deploy: the spec has changed for it
    keep head: it is as it should be
    restart worker-0: the spec has changed for it
    restart worker-1: the spec has changed for it",
    );
}

#[test]
fn a_changed_head_restarts_its_workers() {
    let (known, mut observed) = after(&wanted(TWO));
    let changed = || Goal::Up(wanted("{name: demo, ray: {head: {cpus: 1}, workers: {count: 2, cpus: 1}}}"));
    plans(
        changed(),
        &known,
        &observed,
        "#1 project-0, deploy: the spec has changed for it
    restart head: the spec has changed for it
    restart worker-0: its head is restarted
    restart worker-1: its head is restarted",
    );
    // A container carries no digest: its engine compares, and it rejoins the new head on its own.
    observed.projects[0].nodes.iter_mut().for_each(|node| node.digest = None);
    plans(
        changed(),
        &known,
        &observed,
        "#1 project-0, deploy: the spec has changed for it
    keep head: it is as it should be
    keep worker-0: it is as it should be
    keep worker-1: it is as it should be",
    );
}

#[test]
fn a_node_that_ended_is_started_again_and_nothing_else() {
    let wanted = wanted(TWO);
    let (known, mut observed) = after(&wanted);
    observed.projects[0].nodes[1].running = false;
    observed.projects[0].health = Health::Broken("worker-0 is exited".to_owned());
    plans(
        Goal::Up(wanted),
        &known,
        &observed,
        "#1 project-0, deploy: worker-0 is exited
    keep head: it is as it should be
    start worker-0: it no longer runs
    keep worker-1: it is as it should be",
    );
}

#[test]
fn a_worker_that_was_stopped_by_hand_is_started_and_the_plan_says_so() {
    let wanted = wanted(TWO);
    let (mut known, mut observed) = after(&wanted);
    let notes = ProjectNotes { stopped_by_hand: [Key::worker(0)].into(), ..ProjectNotes::default() };
    let record = Record::Noted { key: Key::project(0), notes: Notes::Project(Box::new(notes)) };
    known.apply(record, jiff::Timestamp::UNIX_EPOCH);
    observed.projects[0].nodes[1].running = false;
    observed.projects[0].health = Health::Broken("worker-0 was stopped by hand".to_owned());
    plans(
        Goal::Up(wanted),
        &known,
        &observed,
        "#1 project-0, deploy: worker-0 was stopped by hand
    keep head: it is as it should be
    start worker-0: it was stopped by hand
    keep worker-1: it is as it should be",
    );
}

#[test]
fn after_a_reboot_nodes_are_started_and_their_host_stays() {
    let wanted = wanted(TWO);
    let (known, mut observed) = after(&wanted);
    observed.projects[0].nodes.iter_mut().for_each(|node| node.running = false);
    observed.projects[0].running = false;
    observed.projects[0].health = Health::Broken("head is exited".to_owned());
    plans(
        Goal::Up(wanted),
        &known,
        &observed,
        "#1 project-0, deploy: head is exited
    start head: it no longer runs
    start worker-0: it no longer runs
    start worker-1: it no longer runs",
    );
}

#[test]
fn items_that_a_crash_left_out_of_the_journal_are_adopted() {
    let wanted = wanted(TWO);
    let (_, observed) = after(&wanted);
    let outcome = reconcile(&Goal::Up(wanted), &nothing_known(), &observed);
    assert!(outcome.plan.is_empty(), "{}", outcome.plan);
    assert_eq!(outcome.adopted.len(), 2, "the host and its project: {:?}", outcome.adopted);
}

#[test]
fn down_cleans_a_host_before_it_is_released() {
    let (known, observed) = after(&wanted("{name: demo}"));
    plans(
        Goal::Down,
        &known,
        &observed,
        "#1 project-0, clean host: the cluster is taken down
[1] -> #2 host-0, release: the cluster is taken down",
    );
}

#[test]
fn stop_keeps_the_host() {
    let (known, observed) = after(&wanted("{name: demo}"));
    plans(Goal::Stop, &known, &observed, "#1 project-0, stop project: the cluster is stopped");
}

#[test]
fn of_two_hosts_under_one_tag_the_known_one_stays() {
    let wanted = wanted("{name: demo}");
    let (known, mut observed) = after(&wanted);
    let mut second = observed.resources[0].clone();
    second.id = "h-2".to_owned();
    observed.resources.insert(0, second);
    let outcome = reconcile(&Goal::Up(wanted), &known, &observed);
    assert_eq!(outcome.plan.to_string(), "#1 host-0, release: it exists more than once\n");
    assert!(matches!(
        &outcome.plan.operations[0].action,
        Action::Resource(ResourceAction::Release { resource }) if resource.id == "h-2"
    ));
}

#[test]
fn demands_that_a_host_cannot_meet_are_refused_with_their_field() {
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
