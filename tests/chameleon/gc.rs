//! `gpucl gc`: deletes resources with our owner's tag after a confirmation, without any state; keeps those of other
//! owners.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::sync::Arc;

use gpucl::name::{Owner, Scope};
use gpucl::sandbox::chameleon::Config;
use gpucl::state::{Paths, Store};

use super::matrix::services::{Services, Thing, turn};
use crate::support::TestEnv;
use crate::support::matrix::{Bug, Cloud as _, Home};

/// Services, a user's home without any state, and a cluster of that user from another machine.
struct Bench {
    env: TestEnv,
    services: Arc<Services>,
    runtime: tokio::runtime::Runtime,
    owner: Owner,
    scope: Scope,
}

impl Bench {
    fn new(services: impl AsyncFnOnce() -> Services) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let services = Arc::new(runtime.block_on(services()));
        let owner: Owner = gpucl::util::random::letters(8).unwrap().parse().unwrap();
        let scope = Scope { owner: owner.clone(), cluster: "demo".parse().unwrap() };
        let mut env = TestEnv::new();
        env.set("OS_AUTH_TYPE", "v3applicationcredential");
        env.set("OS_AUTH_URL", &services.auth_url);
        env.set("OS_REGION_NAME", &services.region);
        env.set("OS_APPLICATION_CREDENTIAL_ID", &services.id);
        env.set("OS_APPLICATION_CREDENTIAL_SECRET", &services.secret);
        let bench = Self { env, services, runtime, owner, scope };
        bench.put_owner();
        bench
    }

    fn stand_in() -> Self {
        Self::new(async || Services::stand_in().await)
    }

    fn owner_file(&self) -> std::path::PathBuf {
        self.env.home().join(".config/gpucl/owner")
    }

    fn put_owner(&self) {
        std::fs::create_dir_all(self.owner_file().parent().unwrap()).unwrap();
        std::fs::write(self.owner_file(), format!("{}\n", self.owner)).unwrap();
    }

    /// A lease, a key pair, an address and a server of the cluster `demo`.
    fn cluster(&self) {
        let all = ["lease", "key_pair", "floating_ip", "server"];
        let home = Home::new(self.services.clone(), &self.owner, &all, Bug::None);
        self.runtime.block_on(home.up(None)).unwrap();
        assert_eq!(self.ours().len(), 4);
    }

    fn ours(&self) -> Vec<Thing> {
        self.runtime.block_on(self.services.of(&self.scope))
    }

    fn held(&self) -> BTreeSet<Thing> {
        self.runtime.block_on(self.services.held()).into_iter().collect()
    }

    fn key(&self, name: &str) {
        self.runtime.block_on(self.services.add_key(name));
    }

    fn remove(&self, which: impl Fn(&Thing) -> bool) {
        for thing in self.held().iter().filter(|thing| which(thing)) {
            self.runtime.block_on(self.services.remove(thing));
        }
    }
}

/// Done-when 5, on services of any kind.
fn only_our_resources_are_deleted(bench: &Bench) {
    let stranger = gpucl::util::random::letters(8).unwrap();
    bench.key(&format!("gpucl-{stranger}-demo-key0"));
    let before = bench.held();
    bench.cluster();
    // After it: `up` takes a lease of ours that holds the host.
    let own_lease = format!("alone gpucl-{}-lease-labcdef", bench.owner);
    let own_lease = bench.runtime.block_on(bench.services.add_lease_in(&own_lease, 30, 60));
    // Without a terminal it lists, and deletes nothing.
    let listed = bench.env.run(&["gc", "--provider", "chameleon"]).exits(0).says("--yes` deletes 4 resources");
    for thing in bench.ours() {
        assert!(listed.stdout.contains(&thing.id), "{thing:?} is not in\n{}", listed.stdout);
    }
    assert!(listed.stdout.contains("kept without --leases") && !listed.stdout.contains(&stranger), "{}", listed.stdout);
    assert_eq!(bench.ours().len(), 4);
    let json = bench.env.run(&["gc", "--output", "json"]).exits(0).json();
    let of =
        |standing: &str| json.iter().filter(|line| line["type"] == "gc_item" && line["standing"] == standing).count();
    assert_eq!((of("left"), of("lease"), json.len()), (4, 1, 5));
    // `n` deletes nothing, `y` everything.
    assert_eq!(asked(bench, &["gc", "--provider", "chameleon"], "n"), Some(2));
    assert_eq!(bench.ours().len(), 4);
    assert_eq!(asked(bench, &["gc", "--provider", "chameleon"], "y"), Some(0));
    assert_eq!(bench.ours(), []);
    let _ =
        bench.env.run(&["gc", "--yes", "--provider", "chameleon"]).exits(0).prints("nothing to delete at chameleon");
    assert!(bench.held().iter().any(|thing| thing.id == own_lease), "a lease of its own went without --leases");
    let _ = bench.env.run(&["gc", "--yes", "--leases"]).exits(0).prints("deleted 1 resource; queried");
    assert_eq!(bench.held(), before, "what is another owner's was touched");
    bench.remove(|thing| thing.label.contains(&stranger));
}

/// Runs the program at a terminal, and answers its question.
fn asked(bench: &Bench, arguments: &[&str], answer: &str) -> Option<i32> {
    const TERMINAL: &str = "import os, pty, sys\n\
        pid, fd = pty.fork()\n\
        if pid == 0:\n    os.execv(sys.argv[2], sys.argv[2:])\n\
        seen, answered = b'', False\n\
        while True:\n\
        \x20   try:\n        piece = os.read(fd, 4096)\n    except OSError:\n        break\n\
        \x20   if not piece:\n        break\n\
        \x20   seen += piece\n\
        \x20   if b'[y/N] ' in seen and not answered:\n        answered = True\n        os.write(fd, sys.argv[1].encode() + b'\\n')\n\
        sys.stdout.buffer.write(seen)\n\
        assert answered, 'nothing was asked'\n\
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n";
    let program = bench.env.command(arguments);
    let mut command = Command::new("python3");
    command.args(["-c", TERMINAL, answer]).arg(program.get_program()).args(program.get_args()).env_clear();
    command.current_dir(bench.env.work()).stdin(Stdio::null());
    for (name, value) in program.get_envs() {
        command.env(name, value.unwrap());
    }
    let output = command.output().unwrap();
    let seen = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(seen.contains("delete 4 resources? [y/N]"), "{seen}{}", String::from_utf8_lossy(&output.stderr));
    output.status.code()
}

#[test]
fn gc_deletes_our_leftovers_and_keeps_those_of_others() {
    only_our_resources_are_deleted(&Bench::stand_in());
}

#[test]
#[ignore = "testbed"]
fn gc_deletes_our_leftovers_on_the_real_services() {
    let _turn = turn();
    only_our_resources_are_deleted(&Bench::new(async || Services::real()));
}

#[test]
fn gc_leaves_clusters_with_local_state_to_down() {
    let bench = Bench::stand_in();
    bench.cluster();
    let at = |name: &str| bench.env.home().join(name);
    let paths = Paths {
        config: at(".config/gpucl"),
        state: at(".local/state/gpucl"),
        data: at(".local/share/gpucl"),
        cache: at(".cache/gpucl"),
        runtime: at("run"),
    };
    let store = Store::create(&paths, &bench.scope, jiff::Timestamp::now()).unwrap();
    let _ = bench
        .env
        .run(&["gc", "--yes"])
        .exits(0)
        .prints("has state here: gpucl down -c demo")
        .prints("nothing to delete");
    let key = format!("gpucl-{}-demo-key0", bench.owner);
    let _ = bench.env.run(&["gc", "--yes", "--id", &key]).exits(2).says("gpucl down -c demo");
    assert_eq!(bench.ours().len(), 4);
    store.remove().unwrap();
    let _ = bench.env.run(&["gc", "--yes", "--id", &key]).exits(0).prints("deleted 1 resource");
    assert_eq!(bench.ours().len(), 3, "only what was named went");
}

#[test]
fn without_an_owner_gc_deletes_only_named_clusters() {
    let bench = Bench::stand_in();
    bench.cluster();
    let bob = bench.services.as_bob().unwrap();
    let lease = bench.runtime.block_on(bob.add_lease_in("demo gpucl-bobsbobs-demo-lease0", 40, 60));
    bench.runtime.block_on(bob.add_address("gpucl-bobsbobs-demo-address0"));
    let address = bench.held().into_iter().find(|thing| thing.label == "gpucl-bobsbobs-demo-address0").unwrap().id;
    std::fs::remove_file(bench.owner_file()).unwrap();
    let before = bench.held();
    let lost = bench.env.run(&["gc", "--yes", "--provider", "chameleon"]).exits(1).says("there is no owner in");
    assert!(lost.stdout.contains("unknown if it is yours") && !lost.stdout.contains("bobsbobs"), "{}", lost.stdout);
    for other in [lease.as_str(), address.as_str(), "no-such-id"] {
        let _ = bench.env.run(&["gc", "--yes", "--id", other]).exits(6).says("nothing was deleted");
    }
    assert_eq!(bench.held(), before);
    let server = bench.ours().into_iter().find(|thing| thing.kind == "server").unwrap();
    let _ = bench.env.run(&["gc", "--yes", "--id", &server.id]).exits(0).prints("deleted 1 resource");
    assert!(!bench.owner_file().exists(), "`gc` made an owner");
    let gone: Vec<Thing> = before.difference(&bench.held()).cloned().collect();
    assert_eq!(gone, [server]);
}

/// Bob is in the same project: he can write any description, and give an address to a server of his.
#[test]
fn an_address_marked_only_by_its_description_stays_and_is_reported() {
    let bench = Bench::stand_in();
    bench.cluster();
    let mut bob = bench.services.as_bob().unwrap();
    let tag = format!("gpucl-{}-demo-address0", bench.owner);
    let own = bench.ours().into_iter().find(|thing| thing.kind == "floating_ip").unwrap();
    let forged = bench.runtime.block_on(async {
        bob.node = "c03-05".to_owned();
        let used = bob.add_used_address(&tag).await;
        // An exact copy of our address, including its mark.
        let copied = bob.add_copied_address(&own.id).await;
        bob.add_address(&tag).await;
        let held = bench.services.held().await;
        let is_idle = |thing: &&Thing| thing.label == tag && thing.id != used;
        let idle = held.iter().find(is_idle).unwrap().id.clone();
        [used, copied, idle]
    });
    let said = bench.env.run(&["gc", "--yes", "--provider", "chameleon"]).exits(0);
    let left: BTreeSet<String> = bench.held().into_iter().map(|thing| thing.id).collect();
    for id in &forged {
        assert!(left.contains(id), "{id} of Bob went: {}\n{}", said.stdout, said.stderr);
    }
    assert!(!left.contains(&own.id), "ours is still there");
    assert_eq!(said.stderr.matches("nothing shows that you made it").count(), 2, "{}", said.stderr);
    assert_eq!(said.stderr.matches("leads to a server that is not yours").count(), 1, "{}", said.stderr);
    // An address named explicitly is deleted, unless it is in use.
    let _ = bench.env.run(&["gc", "--yes", "--provider", "chameleon", "--id", &forged[0]]).exits(6);
    let _ = bench.env.run(&["gc", "--yes", "--provider", "chameleon", "--id", &forged[2]]).exits(0);
    assert!(!bench.held().iter().any(|thing| thing.id == forged[2]));
}

#[test]
fn a_foreign_idle_address_with_our_tag_is_not_used() {
    let bench = Bench::stand_in();
    let tag = format!("gpucl-{}-demo-address0", bench.owner);
    bench.runtime.block_on(bench.services.as_bob().unwrap().add_address(&tag));
    let trap = bench.held();
    let all = ["lease", "key_pair", "floating_ip", "server"];
    let home = Home::new(bench.services.clone(), &bench.owner, &all, Bug::None);
    bench.runtime.block_on(home.up(None)).unwrap();
    let addresses = bench.ours().into_iter().filter(|thing| thing.kind == "floating_ip").count();
    assert_eq!(addresses, 2, "the cluster has one of its own beside the other");
    bench.runtime.block_on(home.down(None)).unwrap();
    assert_eq!(bench.held(), trap);
}

#[test]
fn failed_deletions_are_reported() {
    let bugs = [gpucl::sandbox::chameleon::Bug::DeleteDoesNothing].into();
    let bench = Bench::new(async || Services::stand_in_with(Config { bugs, ..Config::default() }).await);
    let key = format!("gpucl-{}-demo-key0", bench.owner);
    bench.key(&key);
    let _ = bench.env.run(&["gc", "--yes", "--provider", "chameleon"]).exits(5).says(&key).says("hint: gpucl gc");
}
