//! Plans of clusters with projects: firewalls, new, adopted and pending hosts.

use super::*;

fn two_projects() -> Desired {
    let both = |at: usize| (Key::host(at), Key::project(at));
    Desired {
        resources: (0..2).map(|at| ResourceRequest { key: both(at).0, ..host() }).collect(),
        preparations: (0..2)
            .map(|at| Preparation { host: both(at).0, digest: "p1".to_owned(), setup: None, behind: None })
            .collect(),
        projects: (0..2)
            .map(|at| ProjectRequest {
                key: both(at).1,
                host: both(at).0,
                digest: Some("d1".to_owned()),
                nodes: Vec::new(),
            })
            .collect(),
        ..Desired::default()
    }
}

fn after_projects() -> (ClusterState, Observed) {
    after(&two_projects())
}

#[test]
fn hosts_with_projects_are_deployed_concurrently() {
    let text = reconcile(&Goal::Up(two_projects()), &nothing_known(), &Observed::default()).plan.to_string();
    assert_eq!(
        text,
        "#1 host-0, acquire: there is none yet\n\
         #2 host-1, acquire: there is none yet\n\
         [1,2] -> #3 host-0, prepare: it is new\n\
         [1,2] -> #4 host-1, prepare: it is new\n\
         [1,3] -> #5 project-0, deploy: it does not run yet\n\
         [2,4] -> #6 project-1, deploy: it does not run yet\n"
    );
}

#[test]
fn hosts_without_open_ports_are_prepared_as_they_come() {
    let desired = Desired { independent_hosts: true, ..two_projects() };
    let text = reconcile(&Goal::Up(desired), &nothing_known(), &Observed::default()).plan.to_string();
    assert_eq!(
        text,
        "#1 host-0, acquire: there is none yet\n\
         #2 host-1, acquire: there is none yet\n\
         [1] -> #3 host-0, prepare: it is new\n\
         [2] -> #4 host-1, prepare: it is new\n\
         [1,2,3] -> #5 project-0, deploy: it does not run yet\n\
         [1,2,4] -> #6 project-1, deploy: it does not run yet\n"
    );
}

/// Created hosts: their firewalls are known only once all of them exist.
fn two_with_firewalls(behind: bool) -> Desired {
    let mut desired = two_projects();
    desired.firewalls = (0..2).map(|at| FirewallGoal { host: Key::host(at), digest: "g1".to_owned() }).collect();
    desired.preparations[1].behind = behind.then(|| Key::host(0));
    desired
}

#[test]
fn no_preparation_waits_for_another_launch() {
    let text = |desired| reconcile(&Goal::Up(desired), &nothing_known(), &Observed::default()).plan.to_string();
    assert_eq!(
        text(two_with_firewalls(false)),
        "#1 host-0, acquire: there is none yet\n\
         #2 host-1, acquire: there is none yet\n\
         [1] -> #3 host-0, prepare: it is new\n\
         [2] -> #4 host-1, prepare: it is new\n\
         [1,2,3] -> #5 host-0, set firewall: it is new\n\
         [1,2,3,4] -> #6 host-1, set firewall: it is new\n\
         [1,3,5] -> #7 project-0, deploy: it does not run yet\n\
         [2,4,6] -> #8 project-1, deploy: it does not run yet\n"
    );
    // Only a host that is reached through the first waits for it.
    let behind = text(two_with_firewalls(true));
    assert!(behind.contains("[1] -> #3 host-0, prepare") && behind.contains("[1,2] -> #4 host-1, prepare"), "{behind}");
}

#[test]
fn firewalls_are_set_again_when_a_host_is_replaced() {
    let (known, mut observed) = after_projects();
    observed.firewalls = (0..2).map(|at| (Key::host(at), "g1".to_owned())).collect();
    let plan = |observed: &Observed| reconcile(&Goal::Up(two_with_firewalls(false)), &known, observed).plan.to_string();
    assert_eq!(plan(&observed), "");
    // The deployment that follows confirms the firewall.
    observed.firewalls.insert(Key::host(1), "other".to_owned());
    assert_eq!(
        plan(&observed),
        "#1 host-1, set firewall: its firewall rules have changed\n\
         [1] -> #2 project-1, deploy: its host's firewall is set again\n"
    );
    // The second host is gone: the first must let the new one in.
    observed.resources.remove(1);
    observed.projects.remove(1);
    observed.prepared.remove(&Key::host(1));
    assert_eq!(
        plan(&observed),
        "#1 host-1, acquire: it is gone\n\
         [1] -> #2 host-1, prepare: it is new\n\
         [1] -> #3 host-0, set firewall: another host is new\n\
         [1,2] -> #4 host-1, set firewall: it is new\n\
         [3] -> #5 project-0, deploy: its host's firewall is set again\n\
         [1,2,4] -> #6 project-1, deploy: it does not run yet\n"
    );
}

#[test]
fn only_resources_of_this_command_are_released() {
    let (mut known, mut observed) = after_projects();
    let extra = |kind: &str, key: &str, id: &str| ObservedResource {
        kind: ResourceKind(kind.to_owned()),
        key: key.parse().unwrap(),
        id: id.to_owned(),
        ..observed.resources[0].clone()
    };
    let more = [extra("key", "sshkey", "k-1"), extra("host", "host2", "h-2"), extra("host", "host3", "h-3")];
    observed.resources.extend(more);
    let at = jiff::Timestamp::UNIX_EPOCH;
    let kind = ItemKind::Resource("host".to_owned());
    known.apply(Record::Requested { key: Key::host(4), kind, digest: "x".to_owned() }, at);
    let made = ["sshkey", "host2", "host3", "host4"].map(|key| key.parse().unwrap());
    let outcome = reconcile(&Goal::GiveBack(made.into()), &known, &observed);
    assert_eq!(
        outcome.plan.to_string(),
        "#1 host-3, release: not everything is available\n\
         #2 host-2, release: not everything is available\n\
         [1,2] -> #3 sshkey, release: not everything is available\n"
    );
    assert_eq!(outcome.forgotten, [Key::host(4)], "requested, but not there");
}

#[test]
fn a_project_is_brought_up_again_only_where_it_is_not_as_wanted() {
    let (known, mut observed) = after_projects();
    let plan = |observed: &Observed| reconcile(&Goal::Up(two_projects()), &known, observed).plan.to_string();
    assert_eq!(plan(&observed), "");
    observed.projects[1].health = Health::Broken("worker-1 is not running".to_owned());
    assert_eq!(plan(&observed), "#1 project-1, deploy: worker-1 is not running\n");
    observed.projects[1].digest = Some("other".to_owned());
    assert_eq!(plan(&observed), "#1 project-1, deploy: the spec has changed for it\n");
}

#[test]
fn hosts_are_cleaned_before_they_are_released() {
    let (known, observed) = after_projects();
    assert_eq!(
        reconcile(&Goal::Down, &known, &observed).plan.to_string(),
        "#1 project-0, clean host: the cluster is taken down\n\
         #2 project-1, clean host: the cluster is taken down\n\
         [1,2] -> #3 host-1, release: the cluster is taken down\n\
         [1,2] -> #4 host-0, release: the cluster is taken down\n"
    );
    let mut other = two_projects();
    other.resources[1].settings = serde_json::json!({"node": "another"});
    let text = reconcile(&Goal::Up(other), &known, &observed).plan.to_string();
    assert!(text.starts_with("#1 project-1, clean host: its host is replaced\n[1] -> #2 host-1, release"), "{text}");
    assert!(text.contains("project-1, deploy: its host is replaced"), "{text}");
}

fn resource(key: &Key, id: &str) -> ObservedResource {
    ObservedResource {
        digest: None,
        key: key.clone(),
        kind: ResourceKind("lease".to_owned()),
        id: id.to_owned(),
        state: ResourceState::Coming,
        adopted: true,
        until: None,
        detail: String::new(),
    }
}

#[test]
fn an_adopted_resource_is_waited_for_used_and_never_released() {
    let lease: Key = "lease0".parse().unwrap();
    let mut wanted = wanted(TWO);
    wanted.resources[0].needs = vec![lease.clone()];
    let adopted = ResourceRequest { key: lease.clone(), is_host: false, adopted: Some("l-1".to_owned()), ..host() };
    wanted.resources.insert(0, adopted);
    wanted.projects.clear();
    let mut observed = Observed { resources: vec![resource(&lease, "l-1")], ..Observed::default() };
    plans(
        Goal::Up(wanted.clone()),
        &nothing_known(),
        &observed,
        "#1 lease-0, wait for: it is being created
[1] -> #2 host-0, acquire: there is none yet
[2] -> #3 host-0, prepare: it is new",
    );
    let outcome = reconcile(&Goal::Up(wanted.clone()), &nothing_known(), &observed);
    assert_eq!(outcome.adopted[0].2, "l-1", "it is recorded");
    // Once usable, it needs no operation; and `down` leaves it.
    observed.resources[0].state = ResourceState::Usable;
    let plan = reconcile(&Goal::Up(wanted), &nothing_known(), &observed).plan;
    assert!(plan.operations.iter().all(|operation| operation.key != lease), "{plan}");
    plans(Goal::Down, &nothing_known(), &observed, "");
}

#[test]
fn a_pending_resource_is_waited_for_and_not_replaced() {
    let mut wanted = wanted(TWO);
    let (known, mut observed) = after(&wanted);
    wanted.projects.clear();
    observed.projects.clear();
    observed.resources[0].state = ResourceState::Coming;
    let plan = reconcile(&Goal::Up(wanted), &known, &observed).plan;
    assert!(plan.to_string().starts_with("#1 host-0, wait for: it is being created"), "{plan}");
    assert_eq!(plan.operations.len(), 1, "{plan}");
}

/// What `down --keep-data` kept is used again by the next `up`, and removed by a `down` without it.
#[test]
fn kept_data_is_not_cleaned_by_up() {
    let kept = |remains: &[&str]| ObservedProject {
        key: Key::project(0),
        host: Key::host(0),
        id: "x".to_owned(),
        digest: None,
        health: Health::Good,
        running: false,
        nodes: Vec::new(),
        remains: remains.iter().map(|what| Remnant::parse(what)).collect(),
    };
    let plan = |goal: &Goal, remains: &[&str]| {
        let observed = Observed { projects: vec![kept(remains)], ..Observed::default() };
        reconcile(goal, &nothing_known(), &observed).plan.to_string()
    };
    let (up, data) = (Goal::Up(two_projects()), ["volume models", "data folder /var/lib/gpucl/x/data"]);
    let text = plan(&up, &data);
    assert!(text.contains("project-0, deploy: it does not run yet") && !text.contains("clean"), "{text}");
    assert!(plan(&up, &[data[0], "network x"]).contains("project-0, clean host"), "more than data is cleaned");
    assert!(plan(&Goal::Down, &data).contains("project-0, clean host"));
}

/// Data is filled between the preparation and the first node, and no node is touched while a host lacks it.
#[test]
fn data_is_filled_before_any_node_starts() {
    let goal = || (0..2).map(|at| DataGoal { host: Key::host(at), digest: "s1".to_owned() }).collect::<Vec<_>>();
    let plan = |desired: &Desired, known: &ClusterState, observed: &Observed| {
        reconcile(&Goal::Up(desired.clone()), known, observed).plan.to_string()
    };
    let mut desired = Desired { data: goal(), ..two_with_firewalls(false) };
    desired.independent_hosts = true;
    let text = plan(&desired, &nothing_known(), &Observed::default());
    assert_eq!(
        text,
        "#1 host-0, acquire: there is none yet\n\
         #2 host-1, acquire: there is none yet\n\
         [1] -> #3 host-0, prepare: it is new\n\
         [2] -> #4 host-1, prepare: it is new\n\
         [1,3] -> #5 host-0, fill data: it is new\n\
         [2,4] -> #6 host-1, fill data: it is new\n\
         [1,2,3,5,6] -> #7 host-0, set firewall: it is new\n\
         [1,2,3,4,5,6] -> #8 host-1, set firewall: it is new\n\
         [1,2,3,5,6,7] -> #9 project-0, deploy: it does not run yet\n\
         [1,2,4,5,6,8] -> #10 project-1, deploy: it does not run yet\n"
    );
    let (known, mut observed) = after_projects();
    let desired = Desired { data: goal(), ..two_projects() };
    for (filled, causes) in [
        ([None, Some("s1")], vec!["#1 host-0, fill data: its data is not there yet"]),
        ([Some("s1"), Some("")], vec!["#1 host-1, fill data: some of its data is gone or fails its check"]),
        ([Some("s0"), Some("s1")], vec!["#1 host-0, fill data: its data has changed"]),
        ([Some("s1"), Some("s1")], vec![]),
    ] {
        let each = filled.iter().enumerate();
        observed.filled = each.filter_map(|(at, digest)| Some((Key::host(at), (*digest)?.to_owned()))).collect();
        assert_eq!(plan(&desired, &known, &observed).lines().collect::<Vec<_>>(), causes);
    }
    // A host that is prepared again has a firewall that waits for its next stage.
    observed.prepared.remove(&Key::host(1));
    assert_eq!(
        plan(&desired, &known, &observed),
        "#1 host-1, prepare: it is not prepared yet\n[1] -> #2 host-1, fill data: it is prepared again\n"
    );
}

#[test]
fn a_changed_setup_is_installed_everywhere_before_anything_that_runs_is_touched() {
    let mut wanted = two_projects();
    wanted.projects[1].nodes = vec![NodeRequest { key: Key::worker(0), digest: None }];
    let (mut known, mut observed) = after(&wanted);
    for at in 0..2 {
        let notes = Notes::Project(Box::new(ProjectNotes { setup: Some("s1".to_owned()), ..ProjectNotes::default() }));
        known.apply(Record::Noted { key: Key::project(at), notes }, jiff::Timestamp::UNIX_EPOCH);
    }
    for preparation in &mut wanted.preparations {
        (preparation.digest, preparation.setup) = ("p2".to_owned(), Some("s2".to_owned()));
    }
    // What a host was prepared with is not known while its spec is another.
    observed.prepared.clear();
    plans(
        Goal::Up(wanted.clone()),
        &known,
        &observed,
        "#1 host-0, prepare: its setup has changed
#2 host-1, prepare: its setup has changed
[1,2] -> #3 project-0, deploy: its setup has changed
[1,2] -> #4 project-1, deploy: its setup has changed
    restart worker-0: its setup has changed",
    );
    // Nodes that do not run are started as in any other case, as soon as their host is prepared.
    for project in &mut observed.projects {
        (project.running, project.digest) = (false, None);
        project.nodes.clear();
    }
    let text = reconcile(&Goal::Up(wanted), &known, &observed).plan.to_string();
    assert!(text.contains("[1] -> #3 project-0, deploy: it was not brought up completely"), "{text}");
}
