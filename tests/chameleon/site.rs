//! Common parts of the tests: services, a user, the program, and the resources left afterwards.

use std::time::{Duration, Instant};

use gpucl::sandbox::chameleon::{Config, Rule, Sandbox, User};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::real::{OWNERS, Real};
use crate::support::{Outcome, TestEnv};

/// Services with a user; leftovers of a test are removed at its end.
pub(crate) struct Site {
    pub(crate) env: TestEnv,
    // After `env`: what that takes down at its end needs the services.
    services: Services,
    runtime: Runtime,
}

enum Services {
    StandIn(Sandbox),
    Real(Box<Real>),
}

/// Something that a service holds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Thing {
    pub(crate) id: String,
    /// What carries the tag: a lease's, a server's, a key pair's name, an address' description.
    pub(crate) name: String,
    pub(crate) status: String,
    pub(crate) user: String,
}

/// The resources at the services.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Held {
    pub(crate) leases: Vec<Thing>,
    pub(crate) servers: Vec<Thing>,
    pub(crate) addresses: Vec<Thing>,
    pub(crate) keys: Vec<Thing>,
}

impl Held {
    /// Leases, servers, addresses and key pairs in numbers.
    pub(crate) fn counts(&self) -> [usize; 4] {
        [self.leases.len(), self.servers.len(), self.addresses.len(), self.keys.len()]
    }

    fn keep(mut self, keeps: impl Fn(&Thing) -> bool) -> Self {
        for list in [&mut self.leases, &mut self.servers, &mut self.addresses, &mut self.keys] {
            list.retain(&keeps);
        }
        self
    }
}

/// Output of the fake `ssh` for every connection: nobody can log in at a stand-in.
pub(crate) const NO_SSH: &str = "ssh: connect to host somewhere port 22: Connection timed out";
/// A refusal for which `up` does not wait.
const DENIED: &str = "cc@somewhere: Permission denied (publickey).";

impl Site {
    /// A stand-in, as Alice.
    pub(crate) fn stand_in() -> Self {
        Self::with(Config::default())
    }

    /// A stand-in like this, as Alice.
    pub(crate) fn with(config: Config) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let sandbox = runtime.block_on(Sandbox::start(config)).unwrap();
        let mut site = Self { env: TestEnv::new(), services: Services::StandIn(sandbox), runtime };
        site.env = site.user(User::Alice);
        site.ssh_says(DENIED);
        site
    }

    /// The real services through a proxy of this test's own, as Alice; one test at a time.
    pub(crate) fn real() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let real = Box::new(Real::open());
        let mut site = Self { env: TestEnv::new(), services: Services::Real(real), runtime };
        site.env = site.user(User::Alice);
        site.ssh_says(DENIED);
        site
    }

    /// A user's home: another owner, another state folder, the same services.
    pub(crate) fn user(&self, user: User) -> TestEnv {
        let mut env = TestEnv::new();
        if self.is_real() {
            let folder = env.home().join(".config/gpucl");
            std::fs::create_dir_all(&folder).unwrap();
            let number = jiff::Timestamp::now().as_microsecond() & 0xffff;
            std::fs::write(folder.join("owner"), format!("{OWNERS}{number:04x}\n")).unwrap();
        }
        let (url, region, id, secret) = self.login(user);
        env.set("OS_AUTH_TYPE", "v3applicationcredential");
        env.set("OS_AUTH_URL", &url);
        env.set("OS_REGION_NAME", &region);
        env.set("OS_APPLICATION_CREDENTIAL_ID", &id);
        env.set("OS_APPLICATION_CREDENTIAL_SECRET", &secret);
        env
    }

    /// Where and with what a user logs in: address, region, and an application credential's id and secret.
    pub(crate) fn login(&self, user: User) -> (String, String, String, String) {
        match &self.services {
            Services::StandIn(sandbox) => {
                let credentials = sandbox.credentials(user);
                (sandbox.auth_url(), sandbox.region(), credentials.id, credentials.secret)
            }
            Services::Real(real) => real.login(user),
        }
    }

    /// Puts an `ssh` before the real one that says this and ends.
    pub(crate) fn ssh_says(&mut self, text: &str) {
        ssh_says(&mut self.env, text);
    }

    /// The stand-in itself.
    #[track_caller]
    pub(crate) fn sandbox(&self) -> &Sandbox {
        match &self.services {
            Services::StandIn(sandbox) => sandbox,
            Services::Real(_) => panic!("the real services cannot be steered like this"),
        }
    }

    /// Whether these are the real services.
    pub(crate) fn is_real(&self) -> bool {
        matches!(self.services, Services::Real(_))
    }

    /// The host that tests book and boot.
    pub(crate) fn node(&self) -> &'static str {
        "c03-05"
    }

    /// Another host.
    pub(crate) fn other_node(&self) -> &'static str {
        "liqid02"
    }

    /// Trouble from now on.
    pub(crate) fn faults(&self, rules: Vec<Rule>) {
        match &self.services {
            Services::StandIn(sandbox) => sandbox.faults(rules).unwrap(),
            Services::Real(real) => self.runtime.block_on(real.faults(&rules)),
        }
    }

    /// How many requests of this kind were made; the path is what it ends in.
    pub(crate) fn asked(&self, method: &str, path: &str) -> usize {
        let is_it = |asked: &str, at: &str| asked == method && at.ends_with(path);
        match &self.services {
            Services::StandIn(sandbox) => {
                sandbox.log().iter().filter(|entry| is_it(&entry.method, &entry.path)).count()
            }
            Services::Real(real) => {
                let log = self.runtime.block_on(real.log());
                let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
                log.iter().filter(|entry| is_it(&text(entry, "method"), &text(entry, "path"))).count()
            }
        }
    }

    /// The id of a user.
    pub(crate) fn user_id(&self, user: User) -> String {
        match &self.services {
            Services::StandIn(sandbox) => sandbox.credentials(user).user_id,
            Services::Real(real) => real.account(user)["user_id"].as_str().unwrap().to_owned(),
        }
    }

    /// The resources of a user, without expired leases.
    pub(crate) fn of(&self, user: User) -> Held {
        let id = self.user_id(user);
        self.all(user).keep(|thing| thing.user == id && thing.status != "TERMINATED")
    }

    /// The resources with the tag of this home's owner, of any user.
    pub(crate) fn of_owner(&self, env: &TestEnv) -> Held {
        let Ok(owner) = std::fs::read_to_string(env.home().join(".config/gpucl/owner")) else {
            return Held::default();
        };
        let tag = format!("gpucl-{}-", owner.lines().next().unwrap_or_default());
        let mut all = self.all(User::Alice);
        if self.is_real() {
            // Key pairs are each user's own, and nobody else sees them.
            all.keys.extend(self.all(User::Bob).keys);
        }
        all.keep(|thing| thing.name.contains(&tag) && thing.status != "TERMINATED")
    }

    /// The resources with our own tag.
    pub(crate) fn ours(&self) -> Held {
        self.of_owner(&self.env)
    }

    fn all(&self, user: User) -> Held {
        let sandbox = match &self.services {
            Services::StandIn(sandbox) => sandbox,
            Services::Real(real) => return self.runtime.block_on(real.all(user)),
        };
        let seen = sandbox.snapshot();
        let thing = |id: &str, name: &str, status: &str, user: &str| Thing {
            id: id.to_owned(),
            name: name.to_owned(),
            status: status.to_owned(),
            user: user.to_owned(),
        };
        Held {
            leases: seen.leases.iter().map(|one| thing(&one.id, &one.name, &one.status, &one.user_id)).collect(),
            servers: seen.servers.iter().map(|one| thing(&one.id, &one.name, &one.status, &one.user_id)).collect(),
            addresses: seen
                .floating_ips
                .iter()
                .map(|one| thing(&one.id, &one.description, &one.status, &one.user_id))
                .collect(),
            keys: seen.key_pairs.iter().map(|one| thing(&one.name, &one.name, "", &one.user_id)).collect(),
        }
    }

    /// A lease of somebody's, as the web form makes it; its id.
    pub(crate) fn lease_of(&self, user: User, name: &str, node: &str, from: Option<Duration>, hours: u64) -> String {
        let now = jiff::Timestamp::now();
        let at = |by: Duration| (now + by).strftime("%Y-%m-%d %H:%M").to_string();
        let start = from.map_or_else(|| "now".to_owned(), at);
        let end = at(from.unwrap_or_default() + Duration::from_secs(hours * 3600));
        let body = json!({"name": name, "start_date": start, "end_date": end, "events": [], "before_end_date": "",
            "reservations": [{"resource_type": "physical:host", "min": 1, "max": 1, "hypervisor_properties": "",
                "resource_properties": format!("[\"=\", \"$node_name\", \"{node}\"]")}]});
        let (status, answer) = self.call(user, "POST", "/reservation/v1/leases", &body);
        assert_eq!(status, 201, "{answer}");
        let id = answer["lease"]["id"].as_str().unwrap().to_owned();
        if let Services::Real(real) = &self.services {
            real.made.lock().unwrap().push(id.clone());
        }
        id
    }

    /// One request of a user's to a service, past the program.
    pub(crate) fn call(&self, user: User, method: &str, path: &str, body: &Value) -> (u16, Value) {
        match &self.services {
            Services::Real(real) => self.runtime.block_on(real.call(user, method, path, body)),
            Services::StandIn(sandbox) => {
                let base = sandbox.auth_url();
                let url = format!("{}{path}", base.strip_suffix("/identity/v3").unwrap());
                self.runtime.block_on(super::real::send(&sandbox.token(user), method, &url, body))
            }
        }
    }

    /// Waits until a lease has one of these statuses.
    #[track_caller]
    pub(crate) fn lease_becomes(&self, user: User, id: &str, statuses: &[&str]) {
        let begin = Instant::now();
        loop {
            let (_, answer) = self.call(user, "GET", &format!("/reservation/v1/leases/{id}"), &Value::Null);
            let status = answer["lease"]["status"].as_str().unwrap_or_default().to_owned();
            if statuses.contains(&status.as_str()) {
                return;
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "the lease is {status}, and not {statuses:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Runs the program as Alice.
    pub(crate) fn run(&self, arguments: &[&str]) -> Outcome {
        self.env.run(arguments)
    }

    /// Writes a spec of one host, with more lines below `provider:` and at its end.
    pub(crate) fn spec(&self, provider: &str, more: &str) -> String {
        spec_into(&self.env, self.node(), provider, more)
    }

    /// `up`, as far as it gets without hosts: all resources exist, and SSH does not answer.
    #[track_caller]
    pub(crate) fn up_to_ssh(&self, spec: &str) -> Outcome {
        self.run(&["up", spec]).exits(1).says("failed to connect to host-0")
    }

    /// `down`; then only `leases` leases that `up` did not create are left of ours.
    #[track_caller]
    pub(crate) fn down_keeping_leases(&self, leases: usize) -> Outcome {
        let down = self.run(&["down", "--yes", "-c", "demo"]).exits(0);
        assert_eq!(self.ours().counts(), [leases, 0, 0, 0], "after `down`: {:?}", self.ours());
        down
    }

    /// `down`, and that nothing of ours is left.
    #[track_caller]
    pub(crate) fn down(&self) -> Outcome {
        let down = self.run(&["down", "--yes", "-c", "demo"]).exits(0);
        assert_eq!(self.ours().counts(), [0; 4], "after `down`: {:?}", self.ours());
        down
    }
}

/// Active faults are removed first, since they would prevent the cleanup.
impl Drop for Site {
    fn drop(&mut self) {
        match &self.services {
            Services::StandIn(sandbox) => sandbox.faults(Vec::new()).unwrap_or_default(),
            Services::Real(real) => self.runtime.block_on(real.faults(&[])),
        }
    }
}

/// Writes a spec of one host into somebody's working folder.
pub(crate) fn spec_into(env: &TestEnv, node: &str, provider: &str, more: &str) -> String {
    // From a minute on a key that is refused is waited for: a machine that is being made may not know it yet.
    let more = if more.is_empty() { "timeouts: { boot: 2s }" } else { more };
    let provider: String = provider.lines().map(|line| format!("  {line}\n")).collect();
    let text = format!(
        "name: demo\nprovider:\n  name: chameleon\n{provider}runtime: docker\nhosts:\n  - node: {node}\n\
         ray:\n  workers: {{ per: gpu, cpus: 1 }}\n{more}\n"
    );
    env.write("cluster.yaml", &text);
    "cluster.yaml".to_owned()
}

/// Puts an `ssh` before the real one that says this and ends. Its output without a connection stays the same.
pub(crate) fn ssh_says(env: &mut TestEnv, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = env.root().join("bin");
    std::fs::create_dir_all(&folder).unwrap();
    let path = std::env::var("PATH").unwrap();
    let script = format!(
        "#!/bin/sh\nPATH='{path}'\nlog=/dev/stderr\nbefore=\nfor word in \"$@\"; do\n  \
         [ \"$word\" != -G ] || exec ssh \"$@\"\n  [ \"$before\" != -E ] || log=$word\n  before=$word\ndone\n\
         echo '{text}' >>\"$log\"\nexit 255\n"
    );
    let file = folder.join("ssh");
    std::fs::write(&file, script).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    env.set("PATH", &format!("{}:{path}", folder.display()));
}
