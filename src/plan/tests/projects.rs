//! Plans of clusters whose hosts have projects, are opened to each other, made, adopted and waited for.

use super::*;

fn two_projects() -> Desired {
    let both = |at: usize| (Key::host(at), Key::project(at));
    Desired {
        resources: (0..2).map(|at| ResourceRequest { key: both(at).0, ..host() }).collect(),
        preparations: (0..2)
            .map(|at| Preparation { host: both(at).0, digest: "p1".to_owned(), behind: None })
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
fn hosts_with_projects_go_side_by_side() {
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
fn hosts_that_open_nothing_to_each_other_are_prepared_as_they_come() {
    let desired = Desired { apart: true, ..two_projects() };
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

/// Hosts that are made: what they let in from each other is known only when all of them are there.
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
    // Only one that is reached through the first waits for that.
    let behind = text(two_with_firewalls(true));
    assert!(behind.contains("[1] -> #3 host-0, prepare") && behind.contains("[1,2] -> #4 host-1, prepare"), "{behind}");
}

#[test]
fn hosts_are_opened_to_each_other_anew_when_one_of_them_is_another() {
    let (known, mut observed) = after_projects();
    observed.firewalls = (0..2).map(|at| (Key::host(at), "g1".to_owned())).collect();
    let plan = |observed: &Observed| reconcile(&Goal::Up(two_with_firewalls(false)), &known, observed).plan.to_string();
    assert_eq!(plan(&observed), "");
    // What is opened is kept by the deployment that follows it, so there is one.
    observed.firewalls.insert(Key::host(1), "other".to_owned());
    assert_eq!(
        plan(&observed),
        "#1 host-1, set firewall: what it lets in has changed\n\
         [1] -> #2 project-1, deploy: what its host lets in is set anew\n"
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
         [3] -> #5 project-0, deploy: what its host lets in is set anew\n\
         [1,2,4] -> #6 project-1, deploy: it does not run yet\n"
    );
}

#[test]
fn only_what_was_made_is_given_back() {
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
        "#1 host-3, release: not all of it can be had\n\
         #2 host-2, release: not all of it can be had\n\
         [1,2] -> #3 sshkey, release: not all of it can be had\n"
    );
    assert_eq!(outcome.forgotten, [Key::host(4)], "what was asked for and is not there");
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
fn a_host_is_cleaned_before_it_is_given_back() {
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
    assert!(text.starts_with("#1 project-1, clean host: its host is made anew\n[1] -> #2 host-1, release"), "{text}");
    assert!(text.contains("project-1, deploy: its host is made anew"), "{text}");
}

fn resource(key: &Key, id: &str) -> ObservedResource {
    ObservedResource {
        key: key.clone(),
        kind: ResourceKind("lease".to_owned()),
        id: id.to_owned(),
        usable: false,
        coming: true,
        adopted: true,
        until: None,
        detail: String::new(),
    }
}

#[test]
fn what_is_adopted_is_waited_for_used_and_never_released() {
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
        "#1 lease-0, wait for: it is being made
[1] -> #2 host-0, acquire: there is none yet
[2] -> #3 host-0, prepare: it is new",
    );
    let outcome = reconcile(&Goal::Up(wanted.clone()), &nothing_known(), &observed);
    assert_eq!(outcome.adopted[0].2, "l-1", "it is written down");
    // Usable, it takes nothing; and whatever is taken down, it stays.
    (observed.resources[0].usable, observed.resources[0].coming) = (true, false);
    let plan = reconcile(&Goal::Up(wanted), &nothing_known(), &observed).plan;
    assert!(plan.operations.iter().all(|operation| operation.key != lease), "{plan}");
    plans(Goal::Down, &nothing_known(), &observed, "");
}

#[test]
fn what_is_on_its_way_is_waited_for_and_not_made_anew() {
    let mut wanted = wanted(TWO);
    let (known, mut observed) = after(&wanted);
    wanted.projects.clear();
    observed.projects.clear();
    (observed.resources[0].usable, observed.resources[0].coming) = (false, true);
    let plan = reconcile(&Goal::Up(wanted), &known, &observed).plan;
    assert!(plan.to_string().starts_with("#1 host-0, wait for: it is being made"), "{plan}");
    assert_eq!(plan.operations.len(), 1, "{plan}");
}
