//! Users: insufficient credentials, and other users of the project.

use gpucl::sandbox::chameleon::Service;

use super::{Config, Rule, Site, User, on_both, spec_into, ssh_says};

on_both! {
    ci: []
    every: [
        another_users_cluster_with_the_same_name_is_left_alone
        an_expired_token_is_renewed_silently
        a_restricted_credential_is_recognized_before_a_lease_is_requested
        a_wrong_secret_is_distinguished_from_an_unknown_credential
    ]
}

const DENIED: &str = "cc@somewhere: Permission denied (publickey).";

fn another_users_cluster_with_the_same_name_is_left_alone(site: Site) {
    let mut bob = site.user(User::Bob);
    ssh_says(&mut bob, DENIED);
    // The same example, one host further; the same name.
    let theirs = spec_into(&bob, site.other_node(), "", "");
    bob.run(&["up", &theirs]).exits(1).says("failed to connect to host-0");
    let before = site.of_owner(&bob);
    assert_eq!(before.counts(), [1, 1, 1, 1], "{before:?}");

    // Nothing of theirs is taken for ours: neither the lease nor its host.
    site.run(&["status", "-c", "demo"]).exits(6);
    let same = spec_into(&site.env, site.other_node(), "start: now", "");
    site.run(&["up", &same]).exits(1).says(&format!("{} is taken: ", site.other_node()));
    assert_eq!(site.ours().counts(), [0; 4]);
    assert_eq!(site.of_owner(&bob), before);
    let ours = site.spec("", "");
    let listed = site.run(&["lease", "list"]).exits(0);
    assert!(!listed.stdout.contains(site.other_node()), "{}", listed.stdout);
    site.up_to_ssh(&ours);
    assert_eq!(site.ours().counts(), [1, 1, 1, 1]);
    assert_eq!(site.of_owner(&bob), before);
    site.run(&["lease", "--node", site.other_node(), "--hours", "1", "--start", "now", "--dry-run"])
        .exits(1)
        .says("is taken");

    // Listed with `--all` as another user's; neither changed nor deleted.
    let id = before.leases[0].id.clone();
    site.run(&["lease", "list", "--all"]).exits(0).prints("another user's");
    site.run(&["lease", "delete", &id, "--yes"])
        .exits(2)
        .says("another user of the project made it")
        .says("only your own leases can be changed; nothing was done")
        .says("hint: gpucl lease list");
    site.run(&["lease", "extend", &id, "--hours", "1"]).exits(2).says("another user of the project made it");
    site.down();
    assert_eq!(site.of_owner(&bob), before, "`down` touches nothing of theirs");
    site.run(&["down", "--yes", "-c", "demo"]).exits(6);
    assert_eq!(site.of_owner(&bob), before);

    bob.run(&["down", "--yes", "-c", "demo"]).exits(0);
    assert_eq!(site.of_owner(&bob).counts(), [0; 4]);
}

fn an_expired_token_is_renewed_silently(site: Site) {
    site.faults(vec![
        Rule::new("POST", "/servers$", "token-expire"),
        Rule::new("POST", "/reservation/v1/leases$", "token-expire"),
        Rule::new("GET", "/reservation/v1/os-hosts$", "token-expire"),
    ]);
    let spec = site.spec("", "");
    let up = site.up_to_ssh(&spec);
    assert!(!up.stderr.to_lowercase().contains("token"), "{}", up.stderr);
    assert!(site.asked("POST", "/auth/tokens") >= 4, "one for each that ended");
    assert_eq!(site.ours().counts(), [1, 1, 1, 1]);
    site.faults(vec![
        Rule::new("DELETE", "/servers/", "token-expire"),
        Rule::new("DELETE", "/reservation/v1/leases/", "token-expire"),
    ]);
    site.down();
}

#[test]
fn an_expired_bare_token_is_reported_as_not_renewable() {
    let mut site = Site::stand_in();
    let token = site.sandbox().token(User::Alice);
    for (name, value) in [
        ("OS_AUTH_TYPE", "v3token"),
        ("OS_TOKEN", token.as_str()),
        ("OS_APPLICATION_CREDENTIAL_ID", ""),
        ("OS_APPLICATION_CREDENTIAL_SECRET", ""),
        ("OS_PROJECT_NAME", "CHI-TEST"),
    ] {
        site.env.set(name, value);
    }
    site.run(&["lease", "--node", "liqid02", "--hours", "1"]).exits(0);
    site.sandbox().expire_tokens();
    site.run(&["lease", "--node", "c03-05", "--hours", "1"]).exits(1).says(
        "hint: a token cannot be renewed: get a new one, or make an application credential: gpucl login chameleon",
    );
    assert_eq!(site.ours().counts(), [1, 0, 0, 0]);
}

fn a_restricted_credential_is_recognized_before_a_lease_is_requested(site: Site) {
    let mut restricted = site.user(User::AliceRestricted);
    ssh_says(&mut restricted, DENIED);
    restricted
        .run(&["lease", "--node", site.node(), "--hours", "1"])
        .exits(1)
        .says("the application credential is restricted, and a lease needs an unrestricted one")
        .says("with the box \"Unrestricted (dangerous)\" ticked, then: gpucl login chameleon --site CHI@UC");
    let spec = spec_into(&restricted, site.node(), "", "");
    restricted.run(&["up", &spec]).exits(1).says("the application credential is restricted");
    assert_eq!(site.asked("POST", "/leases"), 0, "the service would answer \"Internal Server Error\"");
    assert_eq!(site.of_owner(&restricted).counts(), [0; 4]);
    // What it may, it does: look, and boot on a lease that is there.
    restricted.run(&["calendar", "--node", site.node()]).exits(0);
    site.lease_of(User::Alice, "mine", site.node(), None, 1);
    restricted.run(&["up", &spec]).exits(1).says("failed to connect to host-0");
    assert_eq!(site.of_owner(&restricted).counts(), [0, 1, 1, 1]);
    restricted.run(&["down", "--yes", "-c", "demo"]).exits(0);
    assert_eq!(site.of_owner(&restricted).counts(), [0; 4]);
    assert!(site.of(User::Alice).leases.iter().any(|lease| lease.name == "mine"));
}

fn a_wrong_secret_is_distinguished_from_an_unknown_credential(site: Site) {
    let mut wrong = site.user(User::Alice);
    wrong.set("OS_APPLICATION_CREDENTIAL_SECRET", "not-it");
    let refused = wrong.run(&["lease", "--node", site.node(), "--hours", "1"]).exits(1);
    let refused = refused.says("secret").says("hint: gpucl login chameleon");
    assert!(!refused.stderr.contains("not-it"), "{}", refused.stderr);
    let mut unknown = site.user(User::Alice);
    unknown.set("OS_APPLICATION_CREDENTIAL_ID", "0123456789abcdef0123456789abcdef");
    let other = unknown.run(&["lease", "--node", site.node(), "--hours", "1"]).exits(1);
    let other = other.says("0123456789abcdef0123456789abcdef").says("hint: gpucl login chameleon");
    assert_ne!(refused.stderr, other.stderr);
    assert!(other.stderr.contains("no application credential"), "{}", other.stderr);
    for env in [&wrong, &unknown] {
        let spec = spec_into(env, site.node(), "", "");
        env.run(&["up", &spec]).exits(1);
        env.run(&["status", "-c", "demo"]).exits(6);
    }
    assert_eq!(site.asked("POST", "/leases"), 0);
    // A secret is asked for once, and not until an account is locked.
    assert!(site.asked("POST", "/auth/tokens") <= 4, "{}", site.asked("POST", "/auth/tokens"));
}

#[test]
fn a_credential_revoked_after_up_is_reported_and_no_state_is_lost() {
    let site = Site::stand_in();
    let spec = site.spec("", "");
    site.up_to_ssh(&spec);
    site.sandbox().revoke(User::Alice);
    site.run(&["down", "--yes", "-c", "demo"]).exits(1).says("hint: gpucl login chameleon");
    assert_eq!(site.ours().counts(), [1, 1, 1, 1]);
    assert!(site.env.home().join(".local/state/gpucl/clusters/demo").is_dir(), "what is known is kept");
}

#[test]
fn a_site_without_reservations_is_reported_with_an_alternative() {
    let site = Site::with(Config { without: [Service::Reservation].into(), ..Config::default() });
    for arguments in [&["lease", "--node", "liqid02", "--hours", "1"][..], &["calendar"], &["offers"]] {
        site.run(arguments)
            .exits(1)
            .says("its catalog has no public service of type `reservation`; it has ")
            .says("hint: choose a site that has leases, such as --site CHI@TACC or --site CHI@UC");
    }
    let spec = site.spec("", "");
    site.run(&["up", &spec]).exits(1).says("type `reservation`");
    assert_eq!(site.sandbox().snapshot().count(), 0);
    site.run(&["status", "-c", "demo"]).exits(6);
}

#[test]
fn an_unknown_region_is_refused_with_the_catalogs_region() {
    let mut site = Site::stand_in();
    site.env.set("OS_REGION_NAME", "CHI@TACC");
    site.run(&["lease", "--node", "liqid02", "--hours", "1"])
        .exits(1)
        .says("in CHI@UC, not in CHI@TACC")
        .says("hint: choose that site: --site CHI@UC");
    assert_eq!(site.sandbox().snapshot().count(), 0);
}

/// A user of two projects, signed in at the web page.
fn of_two_projects(site: &mut Site) {
    let credentials = site.sandbox().credentials(User::Alice);
    let project =
        |id: &str, name: &str| serde_json::json!({"id": id, "name": name, "domain_id": "default", "enabled": true});
    let projects = [
        project(&credentials.project_id, &credentials.project),
        project("0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f", "CHI-OTHER"),
    ];
    let mut rule = Rule::new("GET", "/auth/projects$", "status:200").times(100);
    rule.body = Some(serde_json::json!({"projects": projects, "links": {}}).to_string());
    site.faults(vec![rule]);
    let token = site.sandbox().access_token(User::Alice);
    for (name, value) in [
        ("OS_AUTH_TYPE", "v3oidcaccesstoken"),
        ("OS_ACCESS_TOKEN", token.as_str()),
        ("OS_IDENTITY_PROVIDER", "chameleon"),
        ("OS_PROTOCOL", "openid"),
        ("OS_APPLICATION_CREDENTIAL_ID", ""),
        ("OS_APPLICATION_CREDENTIAL_SECRET", ""),
    ] {
        site.env.set(name, value);
    }
}

#[test]
fn of_several_projects_only_a_named_one_is_used() {
    let mut site = Site::stand_in();
    of_two_projects(&mut site);
    let spec = site.spec("", "");
    for arguments in [&["lease", "--node", "liqid02", "--hours", "1"][..], &["offers"], &["up", &spec]] {
        site.run(arguments)
            .exits(2)
            .says("is valid for several projects: CHI-OTHER, CHI-TEST")
            .says("hint: choose one: --project NAME, or set OS_PROJECT_NAME");
    }
    site.run(&["offers", "--project", "CHI-NONE"])
        .exits(2)
        .says("you are not in a project CHI-NONE; your projects are CHI-OTHER, CHI-TEST");
    assert_eq!(site.sandbox().snapshot().count(), 0);
    site.run(&["lease", "--node", "liqid02", "--hours", "1", "--project", "CHI-TEST"]).exits(0);
    site.env.set("OS_PROJECT_NAME", "chi-test");
    site.run(&["lease", "--node", "c03-05", "--hours", "1"]).exits(0);
    assert_eq!(site.ours().counts(), [2, 0, 0, 0]);
}
