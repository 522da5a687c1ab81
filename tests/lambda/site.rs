//! Common parts of the tests: a stand-in, a user, and the resources left afterwards.

use gpucl::sandbox::lambda::{Config, Rule, Sandbox, Snapshot, User};
use tokio::runtime::Runtime;

use crate::chameleon::site::ssh_says;
use crate::support::{Outcome, TestEnv};

/// A stand-in with a user. At its end, every request and answer must match the contract.
pub(crate) struct Site {
    pub(crate) env: TestEnv,
    // After `env`: what that takes down at its end needs it.
    pub(crate) sandbox: Sandbox,
    _runtime: Runtime,
}

/// A refusal for which `up` does not wait.
const DENIED: &str = "ubuntu@somewhere: Permission denied (publickey).";
/// Lambda's seconds are milliseconds here.
pub(crate) const PACE: &str = "0.001";

impl Site {
    /// A stand-in without delays, as Alice, with instances of others.
    pub(crate) fn prompt() -> Self {
        Self::with(Config::prompt())
    }

    /// One like this.
    pub(crate) fn with(config: Config) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let sandbox = runtime.block_on(Sandbox::start(config)).unwrap();
        sandbox.add_foreign(20);
        let mut site = Self { env: TestEnv::new(), sandbox, _runtime: runtime };
        site.env = site.user(User::Alice);
        site
    }

    /// Somebody's home: another owner, the same account.
    pub(crate) fn user(&self, user: User) -> TestEnv {
        let mut env = TestEnv::new();
        env.set("LAMBDA_API_KEY", &self.sandbox.key(user));
        env.set("LAMBDA_API_URL", &self.sandbox.base_url());
        env.set("GPUCL_LAMBDA_PACE", PACE);
        ssh_says(&mut env, DENIED);
        env
    }

    /// Runs the program as Alice.
    pub(crate) fn run(&self, arguments: &[&str]) -> Outcome {
        self.env.run(arguments)
    }

    /// Trouble from now on.
    pub(crate) fn faults(&self, rules: Vec<Rule>) {
        self.sandbox.faults(rules).unwrap();
    }

    /// Writes a spec of `hosts` hosts with a GPU, with more lines below `provider:`.
    pub(crate) fn spec(&self, hosts: usize, provider: &str) -> String {
        spec_into(&self.env, hosts, "type: gpu_1x_a10", provider)
    }

    /// `up`, as far as it gets with machines that nobody can log in to.
    #[track_caller]
    pub(crate) fn up_to_ssh(&self, spec: &str) -> Outcome {
        self.run(&["up", "--yes", spec]).exits(1).says("failed to connect to host-")
    }

    /// Gives an instance another name, as everybody in the account can.
    pub(crate) fn rename(&self, id: &str, name: &str) {
        let url = format!("{}/api/v1/instances/{id}", self.sandbox.base_url());
        // It may be the first client of this process.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let request = reqwest::Client::builder().tls_certs_only([]).no_proxy().build().unwrap().post(url);
        let request = request.bearer_auth(self.sandbox.key(User::Alice)).json(&serde_json::json!({ "name": name }));
        let answer = self._runtime.block_on(request.send()).unwrap();
        assert!(answer.status().is_success(), "{}", answer.status());
    }

    /// The resources without those that tests added.
    pub(crate) fn ours(&self) -> Snapshot {
        let mut ours = self.sandbox.snapshot().ours();
        ours.ssh_keys.retain(|key| key.name.starts_with("gpucl-"));
        ours
    }

    /// How many instances that are not terminated, keys, file systems and rulesets are ours.
    pub(crate) fn counts(&self) -> [usize; 4] {
        self.ours().counts()
    }

    /// `down`; then nothing of ours is left, and the resources of others are unchanged.
    #[track_caller]
    pub(crate) fn down(&self) -> Outcome {
        let down = self.run(&["down", "--yes", "-c", "demo"]).exits(0);
        assert_eq!(self.counts(), [0; 4], "after `down`: {:?}", self.ours());
        self.others_are_untouched();
        down
    }

    /// The twenty machines of others run, and the account's own rules are as they were.
    #[track_caller]
    pub(crate) fn others_are_untouched(&self) {
        let seen = self.sandbox.snapshot();
        let running = seen.alive().filter(|one| one.is_foreign && one.status == "active").count();
        assert_eq!(running, 20, "{:?}", seen.instances);
        let asked = self.sandbox.log();
        let touched = asked.iter().find(|entry| entry.method != "GET" && entry.path.contains("firewall-rules/global"));
        let replaced = asked.iter().find(|entry| entry.method == "PUT");
        assert!(touched.is_none() && replaced.is_none(), "{touched:?} {replaced:?}");
    }

    /// How many requests of this kind were made; the path is what it ends in.
    pub(crate) fn asked(&self, method: &str, path: &str) -> usize {
        self.sandbox.log().iter().filter(|entry| entry.method == method && entry.path.ends_with(path)).count()
    }

    /// The id of the only instance of ours.
    #[track_caller]
    pub(crate) fn instance(&self) -> String {
        let ours = self.ours();
        let alive: Vec<_> = ours.alive().collect();
        assert_eq!(alive.len(), 1, "{alive:?}");
        alive[0].id.clone()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.faults(Vec::new());
        super::totals::record();
        if !std::thread::panicking() {
            self.sandbox.check().unwrap();
        }
    }
}

/// Writes a spec of `hosts` hosts into a user's working folder.
pub(crate) fn spec_into(env: &TestEnv, hosts: usize, host: &str, provider: &str) -> String {
    let provider: String = provider.lines().map(|line| format!("  {line}\n")).collect();
    let hosts = format!("  - {{ {host} }}\n").repeat(hosts);
    let text = format!(
        "name: demo\nprovider:\n  name: lambda\n{provider}runtime: docker\nhosts:\n{hosts}\
         ray:\n  workers: {{ per: gpu, cpus: 1 }}\ntimeouts: {{ boot: 2s }}\n"
    );
    env.write("cluster.yaml", &text);
    "cluster.yaml".to_owned()
}
