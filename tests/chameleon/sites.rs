//! All sites of a login at once: two stand-ins with other regions and hosts, one of them slow or down at times.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use gpucl::sandbox::chameleon::{Config, HostConfig, Rule, Sandbox, User};
use jiff::Timestamp;

use super::site::{spec_into, ssh_says};
use crate::support::TestEnv;

/// The limit of `src/cluster/sites.rs`.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);

/// Two sites of one project, and Alice, who has a credential at each.
struct Two {
    env: TestEnv,
    /// `CHI@TACC`, with `gpu-t1`, `gpu-t2` and `liqid01`.
    tacc: Sandbox,
    /// `CHI@UC`, with the stand-in's usual hosts: `liqid01`, `liqid02`, ...
    uc: Option<Sandbox>,
    runtime: tokio::runtime::Runtime,
}

impl Two {
    fn new() -> Self {
        Self::of(["gpu-t1", "gpu-t2", "liqid01"])
    }

    /// `CHI@TACC` with these hosts, of two A100 each.
    fn of(hosts: [&str; 3]) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let hosts = hosts.map(|name| HostConfig::new(name, "gpu_a100", "A100", 2)).to_vec();
        let config = Config { region: "CHI@TACC".to_owned(), hosts, ..Config::default() };
        let tacc = runtime.block_on(Sandbox::start(config)).unwrap();
        let uc = runtime.block_on(Sandbox::start(Config::default())).unwrap();
        let env = TestEnv::new();
        let mut two = Self { env, tacc, uc: Some(uc), runtime };
        two.env = two.user(User::Alice, User::Alice);
        two
    }

    /// A home with a `clouds.yaml` of one cloud, which has a region at each site.
    fn user(&self, at_tacc: User, at_uc: User) -> TestEnv {
        let mut env = TestEnv::new();
        let regions: String =
            [(&self.tacc, at_tacc), (self.uc(), at_uc)].map(|(site, user)| region(site, user)).concat();
        let clouds = format!("clouds:\n  chi:\n    auth_type: v3applicationcredential\n    regions:\n{regions}");
        let path = env.home().join(".config/openstack/clouds.yaml");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, clouds).unwrap();
        ssh_says(&mut env, "cc@somewhere: Permission denied (publickey).");
        env
    }

    fn uc(&self) -> &Sandbox {
        self.uc.as_ref().unwrap()
    }

    /// Ends CHI@UC: nobody listens there any more.
    fn stop_uc(&mut self) {
        drop(self.uc.take());
        // The task that holds the port is dropped by its runtime.
        self.runtime.block_on(tokio::task::yield_now());
    }

    /// Books these hosts of a site from now on for a day.
    fn book(site: &Sandbox, hosts: &[&str]) {
        let (now, day) = (Timestamp::now(), jiff::SignedDuration::from_hours(24));
        for host in hosts {
            site.foreign_lease(host, now - jiff::SignedDuration::from_hours(1), now + day).unwrap();
        }
    }

    /// The resources at both sites with the tag of this home's owner, by site.
    fn held(&self, env: &TestEnv) -> [usize; 2] {
        let owner = std::fs::read_to_string(env.home().join(".config/gpucl/owner")).unwrap_or_default();
        let tag = format!("gpucl-{}-", owner.lines().next().unwrap_or("none"));
        let of = |site: &Sandbox| {
            let seen = site.snapshot();
            let leases = seen.leases.iter().filter(|one| one.name.contains(&tag) && one.status != "TERMINATED").count();
            let servers = seen.servers.iter().filter(|one| one.name.contains(&tag)).count();
            let keys = seen.key_pairs.iter().filter(|one| one.name.contains(&tag)).count();
            leases + servers + keys + seen.floating_ips.iter().filter(|one| one.description.contains(&tag)).count()
        };
        [of(&self.tacc), self.uc.as_ref().map_or(0, of)]
    }
}

fn region(site: &Sandbox, user: User) -> String {
    let credentials = site.credentials(user);
    format!(
        "      - name: {}\n        values:\n          auth:\n            auth_url: {}\n            \
         application_credential_id: {}\n            application_credential_secret: {}\n",
        site.region(),
        site.auth_url(),
        credentials.id,
        credentials.secret
    )
}

/// Every call of a site takes longer than anybody waits.
fn never_answers() -> Vec<Rule> {
    let rule = Rule { method: None, ..Rule::new("GET", ".*", "delay:120") };
    vec![rule.times(10_000)]
}

/// The places of the lines of this type.
fn places(lines: &[serde_json::Value], kind: &str) -> BTreeSet<String> {
    let of = lines.iter().filter(|line| line["type"] == kind);
    of.map(|line| line["place"].as_str().unwrap_or_default().to_owned()).collect()
}

fn both() -> BTreeSet<String> {
    ["CHI@TACC".to_owned(), "CHI@UC".to_owned()].into()
}

#[test]
fn one_table_one_chart_and_a_lease_at_the_site_that_has_the_host() {
    let two = Two::new();
    let run = |words: &[&str]| two.env.run(words);
    let offers = run(&["offers", "--gpu", "a100"]).exits(0);
    for row in ["gpu-t1", "liqid02", "CHI@TACC", "CHI@UC"] {
        assert!(offers.stdout.contains(row), "{row}: {}", offers.stdout);
    }
    assert_eq!(places(&run(&["offers", "--gpu", "a100", "--output", "json"]).exits(0).json(), "offer"), both());
    let chart = run(&["calendar", "--gpu", "a100", "--days", "2"]).exits(0);
    assert!(chart.stdout.contains("CHI@TACC and CHI@UC, ") && chart.stdout.contains("WHERE"), "{}", chart.stdout);
    assert_eq!(places(&run(&["calendar", "--output", "json"]).exits(0).json(), "calendar_row"), both());

    run(&["lease", "--node", "gpu-t1", "--hours", "3", "--name", "there"])
        .exits(0)
        .says("it goes to CHI@TACC: free now; CHI@UC: there is no host `gpu-t1`");
    run(&["lease", "--node", "liqid02", "--hours", "3", "--name", "here"]).exits(0).says("it goes to CHI@UC: free now");
    assert_eq!(two.held(&two.env), [1, 1]);
    let listed = run(&["lease", "list"]).exits(0);
    for words in [["there", "CHI@TACC"], ["here", "CHI@UC"]] {
        let row = listed.stdout.lines().find(|line| line.trim_start().starts_with(words[0])).unwrap();
        assert!(row.contains(words[1]), "{row}");
    }
    run(&["lease", "show", "there"]).exits(0).prints("gpu-t1 at CHI@TACC");
    run(&["lease", "wait", "there"]).exits(0).prints("lease there is active");
    run(&["lease", "extend", "here", "--hours", "1"]).exits(0).prints("3 h 59 min left");
    run(&["lease", "delete", "--yes", "there"]).exits(0).prints("lease there is gone");
    assert_eq!(two.held(&two.env), [0, 1]);
    let _ = run(&["lease", "show", "nowhere"]).exits(6).says("CHI@TACC: ").says("CHI@UC: ");
    run(&["lease", "delete", "--yes", "here"]).exits(0);
    assert_eq!(two.held(&two.env), [0, 0]);
}

#[test]
fn a_lease_of_the_same_name_at_two_sites_needs_the_site() {
    let two = Two::new();
    let run = |words: &[&str]| two.env.run(words);
    for site in ["CHI@TACC", "CHI@UC"] {
        run(&["lease", "--node", "liqid01", "--hours", "1", "--name", "train", "--site", site]).exits(0);
    }
    for verb in ["show", "delete"] {
        run(&["lease", verb, "--yes", "train"])
            .exits(2)
            .says("leases at several sites have that name: train at CHI@TACC (")
            .says("hint: choose one: --site CHI@UC");
    }
    assert_eq!(two.held(&two.env), [1, 1]);
    run(&["lease", "delete", "--yes", "train", "--site", "tacc"]).exits(0);
    // One that has ended or is another user's is not meant.
    run(&["lease", "delete", "--yes", "train"]).exits(0);
    assert_eq!(two.held(&two.env), [0, 0]);
}

#[test]
fn a_lease_goes_where_it_begins_first_and_then_where_it_is_cheapest() {
    let two = Two::new();
    let ask = ["lease", "--gpu", "a100", "--count", "2", "--hours", "2", "--dry-run"];
    Two::book(two.uc(), &["liqid01"]);
    let run = |words: &[&str]| two.env.run(words).exits(0);
    run(&ask).prints("it goes to CHI@TACC: free now; CHI@UC only from ").prints("lease ").prints(" at CHI@TACC");
    Two::book(&two.tacc, &["gpu-t1", "gpu-t2"]);
    // The other user's day ends at the same minute at both: the price decides, or else the order.
    let line = &run(&[&ask[..], &["--output", "json"]].concat()).json()[0];
    assert!(line["notes"][0].as_str().unwrap().starts_with("it goes to CHI@"), "{line}");
    assert_eq!(two.held(&two.env), [0, 0]);
}

#[test]
fn a_site_that_is_slow_costs_the_others_nothing() {
    let two = Two::new();
    two.uc().faults(never_answers()).unwrap();
    let begin = Instant::now();
    let lines = two.env.run(&["offers", "--gpu", "a100", "--output", "json"]).exits(0).json();
    let took = begin.elapsed();
    assert!(took < ANSWER_LIMIT + Duration::from_secs(1), "{took:?}");
    assert_eq!(places(&lines, "offer"), ["CHI@TACC".to_owned()].into());
    let failed = lines.iter().find(|line| line["type"] == "offers_failed").unwrap();
    assert_eq!(failed["place"], "CHI@UC");
    assert!(failed["error"].as_str().unwrap().contains("it did not answer within 20 s"), "{failed}");
    println!("offers with one of two sites silent: {took:?}");
}

#[test]
fn a_site_that_is_down_is_named_and_the_others_answer() {
    let mut two = Two::new();
    two.env.run(&["lease", "--node", "gpu-t1", "--hours", "3", "--name", "there"]).exits(0);
    two.stop_uc();
    let run = |words: &[&str]| two.env.run(words);
    run(&["offers", "--gpu", "a100"]).exits(0).prints("gpu-t2").prints("failed: ");
    run(&["calendar", "--gpu", "a100"]).exits(0).prints("gpu-t2").says("warning: CHI@UC did not answer: ");
    let lines = run(&["lease", "list", "--output", "json"]).exits(0).json();
    assert_eq!(
        (places(&lines, "lease"), places(&lines, "site_failed")),
        (["CHI@TACC".to_owned()].into(), ["CHI@UC".to_owned()].into())
    );
    run(&["lease", "show", "there"]).exits(0).prints("at CHI@TACC").says("CHI@UC did not answer");
    let unknown = run(&["lease", "show", "nowhere"]);
    assert!(unknown.code != Some(0) && unknown.code != Some(6), "nobody knows: {}", unknown.stderr);
    run(&["doctor", "--provider", "chameleon"])
        .exits(1)
        .prints("clusters of the provider `chameleon` at CHI@TACC work");
    // Its resources are not proven gone.
    run(&["gc", "--yes", "--leases", "--provider", "chameleon"]).exits(1).prints(
        "deleted 1 resource; queried chameleon (CHI@TACC) again; not asked, so something may be left there: CHI@UC",
    );
    assert_eq!(two.held(&two.env), [0, 0]);
    run(&["lease", "--node", "gpu-t1", "--hours", "1", "--dry-run"]).exits(0).prints("it goes to CHI@TACC: free now");
}

#[test]
fn two_users_of_a_project_clean_up_at_both_sites_and_each_only_their_own() {
    let two = Two::new();
    let bob = two.user(User::Bob, User::Bob);
    for (env, node) in [(&two.env, ["gpu-t1", "liqid02"]), (&bob, ["gpu-t2", "c03-05"])] {
        for node in node {
            env.run(&["lease", "--node", node, "--hours", "2"]).exits(0);
        }
    }
    assert_eq!((two.held(&two.env), two.held(&bob)), ([1, 1], [1, 1]));
    let lines = two.env.run(&["gc", "--leases", "--yes", "--output", "json"]).exits(0).json();
    assert_eq!(places(&lines, "gc_item"), both());
    assert_eq!((two.held(&two.env), two.held(&bob)), ([0, 0], [1, 1]));
    bob.run(&["gc", "--leases", "--yes"]).exits(0).prints("nothing is left");
    assert_eq!((two.held(&two.env), two.held(&bob)), ([0, 0], [0, 0]));
}

#[test]
fn a_cluster_without_a_site_goes_where_it_begins_first_and_stays_there() {
    let two = Two::of(["liqid01", "liqid02", "gpu-t3"]);
    Two::book(two.uc(), &["liqid02"]);
    let spec = spec_into(&two.env, "liqid02", "", "");
    two.env.accept(&spec);
    let run = |words: &[&str]| two.env.run(words);
    run(&["plan", &spec]).exits(0).prints("it goes to CHI@TACC: free now; CHI@UC only from ");
    run(&["up", &spec]).exits(1).says("it goes to CHI@TACC").says("failed to connect to host-0");
    assert_eq!(two.held(&two.env), [4, 0]);
    // Whatever the other site offers now, it is not even asked: the cluster is where it is.
    let asked = two.uc().log().len();
    run(&["up", &spec]).exits(1).says("failed to connect to host-0");
    run(&["plan", &spec]).exits(0);
    run(&["status", "-c", "demo"]);
    assert_eq!((two.held(&two.env), two.uc().log().len()), ([4, 0], asked));
    spec_into(&two.env, "liqid02", "site: uc", "");
    two.env.accept(&spec);
    run(&["up", &spec]).exits(2).says("it is at CHI@TACC, and the spec says uc; nothing was changed");
    run(&["gc", "--yes"]).exits(0);
    assert_eq!(two.held(&two.env), [4, 0], "a cluster with state is left to `down`");
    run(&["down", "--yes", "-c", "demo"]).exits(0);
    assert_eq!(two.held(&two.env), [0, 0]);
}

#[test]
fn a_cluster_whose_state_is_lost_is_found_at_its_site() {
    let mut two = Two::of(["liqid01", "liqid02", "gpu-t3"]);
    Two::book(two.uc(), &["liqid02"]);
    let spec = spec_into(&two.env, "liqid02", "", "");
    two.env.accept(&spec);
    let _ = two.env.run(&["up", &spec]).exits(1);
    std::fs::remove_dir_all(two.env.home().join(".local/state/gpucl/clusters")).unwrap();
    // A second cluster of the name is not begun at another site.
    let _ = two.env.run(&["plan", &spec]).exits(0).prints("it stays at CHI@TACC, where it has resources");
    let _ = two.env.run(&["down", "--yes", "-c", "demo"]).exits(0).says("the cluster's state is lost");
    assert_eq!(two.held(&two.env), [0, 0]);
    two.stop_uc();
    let _ = two.env.run(&["down", "--yes", "-c", "demo"]).exits(6).says("it may be where nobody could be asked");
}

#[test]
fn a_site_that_refuses_is_named_with_its_reason() {
    let two = Two::new();
    // Restricted at one site.
    let env = two.user(User::AliceRestricted, User::Alice);
    let ask = ["lease", "--node", "liqid01", "--hours", "1", "--dry-run"];
    env.run(&ask).exits(0).prints("it goes to CHI@UC: free now; CHI@TACC: the application credential is restricted");
    let doctor = env.run(&["doctor", "--provider", "chameleon"]).exits(1);
    assert!(
        doctor.stdout.contains("at CHI@UC work there") && doctor.stdout.contains("at CHI@TACC do not"),
        "{}",
        doctor.stdout
    );
    // Without a project at one site.
    two.uc().faults(vec![Rule::new("POST", "^/identity/v3/auth/tokens$", "status:401").times(100)]).unwrap();
    let lines = two.env.run(&["calendar", "--output", "json"]).exits(0).json();
    assert_eq!(places(&lines, "calendar_row"), ["CHI@TACC".to_owned()].into());
    assert_eq!(places(&lines, "site_failed"), ["CHI@UC".to_owned()].into());
    // Refused by both: the reason of each.
    two.uc().faults(Vec::new()).unwrap();
    let _ = two
        .env
        .run(&["lease", "--node", "nowhere9", "--hours", "1"])
        .exits(6)
        .says("CHI@TACC: there is no host `nowhere9`")
        .says("CHI@UC: there is no host `nowhere9`");
}

/// The state of an earlier gpucl: made when the login reached one site, without its name.
#[test]
fn a_cluster_whose_state_names_no_site_is_taken_down_where_it_is() {
    let two = Two::of(["liqid01", "liqid02", "gpu-t3"]);
    Two::book(two.uc(), &["liqid02"]);
    let spec = spec_into(&two.env, "liqid02", "", "");
    two.env.accept(&spec);
    let _ = two.env.run(&["up", &spec]).exits(1);
    let mut forgot = 0;
    for entry in std::fs::read_dir(two.env.home().join(".local/state/gpucl/clusters/demo")).unwrap() {
        let path = entry.unwrap().path();
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        // Another setting, of no effect, in its place.
        let other = |text: &str, site: &str| text.replace(site, r#""shorten":false"#);
        let bare = other(&other(&text, r#""site":"CHI@TACC""#), r#""site": "CHI@TACC""#);
        forgot += usize::from(bare != text);
        std::fs::write(path, bare).unwrap();
    }
    assert!(forgot > 0, "the state names its site");
    let _ = two.env.run(&["down", "--yes", "-c", "demo"]).exits(0);
    assert_eq!(two.held(&two.env), [0, 0]);
}

/// The region of a cloud is a claim; the site's catalogue is what it is.
#[test]
fn a_site_with_the_catalogue_of_another_is_said_to_be_that() {
    let two = Two::new();
    let path = two.env.home().join(".config/openstack/clouds.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace(&two.uc().auth_url(), &two.tacc.auth_url())).unwrap();
    let credentials = (two.uc().credentials(User::Alice), two.tacc.credentials(User::Alice));
    let text = std::fs::read_to_string(&path).unwrap();
    let text = text.replace(&credentials.0.id, &credentials.1.id).replace(&credentials.0.secret, &credentials.1.secret);
    std::fs::write(&path, text).unwrap();
    two.env
        .run(&["calendar", "--gpu", "a100"])
        .exits(0)
        .prints("gpu-t1")
        .says("warning: CHI@UC did not answer: ")
        .says("its catalog is that of CHI@TACC");
}

/// Logins in place of a file, and a cloud of the file that nobody named: the login goes before it.
#[test]
fn stored_logins_reach_their_sites() {
    let mut two = Two::new();
    std::fs::remove_file(two.env.home().join(".config/openstack/clouds.yaml")).unwrap();
    two.env.set("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent/bus");
    for site in [&two.tacc, two.uc()] {
        let credentials = site.credentials(User::Alice);
        let (url, region) = (site.auth_url(), site.region());
        let words = ["login", "chameleon", "--site", &region, "--url", &url, "--credential-id", &credentials.id];
        let mut command = two.env.command(&[&words[..], &["--secret-stdin"]].concat());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        writeln!(child.stdin.take().unwrap(), "{}", credentials.secret).unwrap();
        assert!(child.wait().unwrap().success());
    }
    let lines = two.env.run(&["offers", "--output", "json"]).exits(0).json();
    assert_eq!(places(&lines, "offer"), both());
    // Narrowed, it is one site again.
    let lines = two.env.run(&["offers", "--site", "uc", "--output", "json"]).exits(0).json();
    assert_eq!(places(&lines, "offer"), ["CHI@UC".to_owned()].into());
}
