//! Ends of machines at clouds, real leases on the testbed of Chameleon among them, with a real store and nothing of ours on the
//! user's machine; and a training that goes on at another provider.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use gpucl::sandbox::chameleon::User;
use serde_json::{Value, json};

use super::rounds::{TRAIN, begun, kill_all_of};
use crate::chameleon::site::Site;
use crate::hosts::{TestHost, docker, gpucl, mirrors, openstack_script, spec, testbed};
use crate::lambda::whole::Cloud;
use crate::scenario::slot::{EXAMPLE, done_twice};
use crate::support::{TestEnv, holders, turn, until_or};

/// The network of `testbed/hosts`, which hosts with a lease reach as well.
const NETWORK: &str = "gpucl-testbed";
const SECRET: &str = "the-secret-of-the-store";
const STEPS: u64 = 600;

/// A real object store, on this machine.
struct Bucket {
    container: String,
    endpoint: String,
}

impl Bucket {
    fn open() -> Self {
        let _ = testbed();
        let name = "gpucl-test-end-store";
        let _ = Command::new("docker").args(["rm", "-fv", name]).output();
        let root = format!("MINIO_ROOT_PASSWORD={SECRET}");
        let run =
            ["run", "-d", "--rm", "--name", name, "--network", NETWORK, "-e", "MINIO_ROOT_USER=key-id", "-e", &root];
        docker(&[&run[..], &[&image("minio"), "server", "/data"]].concat());
        let of_network = format!("{{{{(index .NetworkSettings.Networks \"{NETWORK}\").IPAddress}}}}");
        let endpoint = format!("http://{}:9000", docker(&["inspect", "-f", &of_network, name]).trim());
        let bucket = Self { container: name.to_owned(), endpoint };
        let make = "s3.create_dir('runs')";
        let answers = || bucket.python(make);
        let why = || String::from_utf8_lossy(&answers().stderr).into_owned();
        until_or("the store", 60, || answers().status.success().then_some(()), why);
        bucket
    }

    /// A client of the store that is not ours.
    fn python(&self, code: &str) -> std::process::Output {
        let of = format!(
            "from pyarrow import fs\ns3 = fs.S3FileSystem(access_key='key-id', secret_key='{SECRET}', region='us-east-1', \
             endpoint_override='{}', allow_bucket_creation=True)\n{code}\n",
            self.endpoint
        );
        let run = ["run", "--rm", "--network", NETWORK, "--entrypoint", "python", &image("ray"), "-c", &of];
        Command::new("docker").args(run).output().unwrap()
    }

    /// The digests of what is below a path, by the path below that; without what guards note.
    fn held(&self, below: &str) -> BTreeMap<String, String> {
        let code = format!(
            "import hashlib\nfor one in s3.get_file_info(fs.FileSelector('{below}', recursive=True)):\n  \
             if one.is_file: print(hashlib.sha256(s3.open_input_stream(one.path).read()).hexdigest(), one.path, sep='  ')"
        );
        let output = self.python(&code);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        digests(&String::from_utf8_lossy(&output.stdout), &format!("{below}/"))
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        let _ = Command::new("docker").args(["rm", "-fv", &self.container]).output();
    }
}

/// The newest image of this name that `testbed/hosts/up` made.
fn image(name: &str) -> String {
    let found = docker(&["image", "ls", "-q", &format!("gpucl-testbed/{name}")]);
    found.lines().next().unwrap_or_else(|| panic!("there is no image {name}")).to_owned()
}

/// What `sha256sum` prints, by the path below a folder.
fn digests(printed: &str, below: &str) -> BTreeMap<String, String> {
    let lines = printed.lines().filter_map(|line| line.split_once("  "));
    let own = lines.filter_map(|(digest, path)| Some((path.strip_prefix(below)?.to_owned(), digest.to_owned())));
    own.filter(|(path, _)| !path.starts_with(".gpucl/")).collect()
}

/// A machine at a cloud, with a container of the testbed behind it.
struct Rented<'a> {
    env: &'a TestEnv,
    /// Of the tests' output, and below which it saves.
    name: &'a str,
    container: String,
    begin: Instant,
}

impl Rented<'_> {
    fn at(&self, what: &str) {
        println!("{} {:6.1} s  {what}", self.name, self.begin.elapsed().as_secs_f64());
    }

    /// Runs a shell text on the host as root, not by SSH; returns what it printed.
    fn sh(&self, text: &str) -> String {
        docker(&["exec", &self.container, "sh", "-c", text])
    }

    fn guard(&self) -> Value {
        let text = self.sh("cat /var/lib/gpucl/gpucl-*/end/guard/state.json 2>/dev/null || true");
        serde_json::from_str(&text).unwrap_or_default()
    }

    fn in_head(&self, command: &str) -> String {
        self.sh(&format!("docker exec $(docker ps -q --filter label=gpucl.key=head) {command} 2>&1 || true"))
    }

    fn log_of_training(&self) -> String {
        self.in_head("cat /tmp/ray/session_latest/logs/job-driver-train.log")
    }

    /// Kills the guard; whether one ran.
    fn kill_guard(&self) -> bool {
        let found = self.sh("pgrep -f 'guard.py run' || true");
        self.sh(&format!("kill -9 {} 2>/dev/null || true", found.split_whitespace().collect::<Vec<_>>().join(" ")));
        !found.trim().is_empty()
    }

    /// Where one of these texts is on the host.
    fn holders(&self, texts: &[&str]) -> Vec<String> {
        let mut exec = Command::new("docker");
        exec.args(["exec", "-i", &self.container]);
        holders(exec, texts)
    }

    /// A training that asks for the end, and a loop that knows of none.
    fn begin_jobs(&self) {
        let submit = ["job", "submit", "--no-wait", "--working-dir"];
        let run = training(self.name);
        let words: Vec<&str> = run.iter().map(String::as_str).collect();
        let _ = gpucl(self.env, &[&submit[..], &[EXAMPLE, "--id", "train", "--"], &words].concat()).exits(0);
        let results = ["job", "--id", "results", "--", "python", "results.py", "loop", "/tmp/step"];
        let _ = gpucl(self.env, &[&submit[..], &results].concat()).exits(0);
        let log = || self.log_of_training();
        until_or("the training is at work", 180, || log().contains("step 3\n").then_some(()), log);
    }

    /// The end comes, with nothing of ours on the user's machine: all is saved but one step, and the cloud's credential is
    /// nowhere on the host. Returns the log of the training. The guard is killed in each phase if it is to be.
    fn ends(&self, store: &Bucket, credential: &[&str], is_killed: bool) -> String {
        println!("{}: {} processes killed", self.name, kill_all_of(self.env));
        self.at("nothing of ours runs on the user's machine; the guard knows the end");
        let (mut seen, mut killed) = (Vec::new(), 0);
        let look = || {
            let state = self.guard();
            let phase = state["phase"].as_str().unwrap_or_default().to_owned();
            if !seen.contains(&phase) {
                self.at(&phase);
                if is_killed && matches!(phase.as_str(), "draining" | "saving") && self.kill_guard() {
                    killed += 1;
                }
                seen.push(phase.clone());
            }
            let ended = state["jobs"]
                .as_array()
                .is_some_and(|jobs| jobs.iter().all(|job| job["status"] != "PENDING" && job["status"] != "RUNNING"));
            (ended && matches!(phase.as_str(), "saved" | "over")).then_some(state)
        };
        let state = until_or("all is saved", 300, look, || self.guard().to_string());
        let end = state["end"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
        let left = end.as_second() - jiff::Timestamp::now().as_second();
        let look = "find . -type f ! -name '*.tmp' ! -name '*.new' -exec sha256sum {} +";
        let there = self.sh(&format!("cd /var/lib/gpucl/gpucl-*/data/results && {look}"));
        let last: u32 = self.in_head("cat /tmp/step").trim().parse().unwrap();
        let trained = self.log_of_training();
        assert_eq!(self.holders(credential), [""; 0], "the cloud's credential is on the host");
        // The store's are where jobs and the guard find them.
        let holders = self.holders(&[SECRET]);
        println!("{}: the store's key is in {holders:?}", self.name);
        assert!(!holders.is_empty() && holders.iter().all(|path| path.contains("/secrets/")), "{holders:?}");
        let (saved, there) = (store.held(&format!("runs/{}", self.name)), digests(&there, "./"));
        assert_eq!(saved, there, "what is saved is not what was there: {state}");
        assert!(state["saved"][0]["complete"] == true && !state["drained"].as_array().unwrap().is_empty(), "{state}");
        let newest = saved.keys().filter(|key| key.starts_with("loop/checkpoint-")).max().unwrap();
        let newest: u32 = newest.rsplit('-').next().unwrap().trim_end_matches(".json").parse().unwrap();
        assert!(newest + 1 >= last && newest > 10, "{newest} of {last}: {state}");
        assert!(trained.contains("ended at step "), "{trained}");
        assert!(!is_killed || killed > 0, "the guard was never killed: {state}");
        println!(
            "{}: saved {left} s before the end: {} files, equal digests; last step {last}, newest checkpoint {newest}; guard \
             killed {killed} times",
            self.name,
            saved.len()
        );
        trained
    }
}

/// What jobs run, and the keys of the store, in the folder of the spec.
fn write_parts(env: &TestEnv) {
    env.write("keys", &format!("[default]\naws_access_key_id = key-id\naws_secret_access_key = {SECRET}\n"));
    env.write("job/results.py", TRAIN);
}

/// The store for jobs, and what is saved to it.
fn with_store(store: &Bucket, name: &str) -> String {
    format!(
        "services:\n  prometheus: false\n  grafana: false\n  jupyter: false\n  object_store:\n    \
         external: {{endpoint: '{}', credentials_file: keys}}\n    buckets: [runs]\n\
         end:\n  warning: 90s\n  save: [{{from: results, to: 's3://runs/{name}'}}]\n",
        store.endpoint
    )
}

/// Brings a cluster up that saves below this name.
fn up(env: &TestEnv, store: &Bucket, name: &str, provider: &str) {
    write_parts(env);
    let text = format!(
        "name: demo\n{provider}runtime: docker\n\
         ray:\n  head: {{object_store_memory: 100MiB, memory: 500MiB}}\n  \
         workers: {{per: gpu, cpus: 1, object_store_memory: 100MiB, memory: 500MiB}}\n{}{}",
        mirrors(),
        with_store(store, name)
    );
    env.write("cluster.yaml", &text);
    env.accept("cluster.yaml");
    let _ = gpucl(env, &["up", "--yes"]).exits(0).prints("ready:").says("Stand-in GPU");
}

fn training(name: &str) -> Vec<String> {
    let command = format!(
        "python train.py --name {name} --storage s3://runs/trained --workers 1 --steps {STEPS} --seconds 0.5 --every 100"
    );
    command.split(' ').map(str::to_owned).collect()
}

/// One end of a real lease, which somebody else has shortened; the log of the training that returned.
fn lease_ends(site: &Site, store: &Bucket, number: usize) -> String {
    let name = format!("r{number}");
    let (env, begin) = (site.user(User::Alice), Instant::now());
    up(&env, store, &name, "provider:\n  name: chameleon\n  hours: 1\nhosts:\n  - node: liqid02\n");
    let container = format!("gpucl-testbed-os-{}", site.of_owner(&env).servers[0].id);
    let leased = Rented { env: &env, name: &name, container, begin };
    leased.at("`up` is ready");
    leased.begin_jobs();
    let lease = site.of_owner(&env).leases[0].id.clone();
    let at = jiff::Timestamp::now() + Duration::from_secs(150 + 59);
    let body = json!({ "end_date": at.strftime("%Y-%m-%d %H:%M").to_string() });
    let (code, answer) = site.call(User::Alice, "PUT", &format!("/reservation/v1/leases/{lease}"), &body);
    assert_eq!(code, 200, "{answer}");
    let _ = gpucl(&env, &["up", "--yes"]).exits(0).prints("ready:");
    let (_, _, id, secret) = site.login(User::Alice);
    let trained = leased.ends(store, &[&id, &secret], number == 2);
    until_or(
        "the lease ends",
        240,
        || site.of_owner(&env).servers.is_empty().then_some(()),
        || format!("{:?}", site.of_owner(&env)),
    );
    leased.at("the host is gone with its lease");
    let down = gpucl(&env, &["down", "--yes"]).exits(0);
    println!("{}", down.stdout);
    assert_eq!(site.of_owner(&env).counts(), [0; 4], "{:?}", site.of_owner(&env));
    leased.at("`down`: nothing is left");
    trained
}

/// A deadline, which is no end for the machine: its bill goes on until the agent takes it down, which any command starts again.
#[test]
#[ignore = "by hand: just end-clouds"]
fn a_deadline_at_lambda_comes_while_nothing_runs_here_and_the_next_command_ends_the_bill() {
    let _turn = turn();
    let cloud = Cloud::start("ready");
    let (store, begin) = (Bucket::open(), Instant::now());
    let provider = |deadline: i64| {
        format!("provider: {{name: lambda, max_price: 2}}\ndeadline: {deadline}s\nhosts:\n  - type: gpu_1x_a10\n")
    };
    let env = &cloud.env;
    up(env, &store, "lambda", &provider(3 * 3600));
    let container = cloud.containers().pop().unwrap();
    let machine = Rented { env, name: "lambda", container, begin };
    machine.at("`up` is ready");
    machine.begin_jobs();
    up(env, &store, "lambda", &provider(jiff::Timestamp::now().as_second() - begun(env, "demo") + 150));
    let _ = machine.ends(&store, &[&cloud.sandbox.key(gpucl::sandbox::lambda::User::Alice)], false);
    assert_eq!(cloud.alive(), 1);
    let _ = gpucl(env, &["list"]).exits(0);
    until_or("the bill ends", 180, || (cloud.alive() == 0).then_some(()), || gpucl(env, &["status"]).stdout);
    machine.at("the agent of the next command has taken it down");
    let ended = || Some(gpucl(env, &["status", "-c", "demo"])).filter(|outcome| outcome.code == Some(6));
    let ended = until_or("its record", 60, ended, String::new);
    println!("{}", ended.stderr);
    let _ = ended.says("its deadline is reached").says("results to s3://runs/lambda: ").says("verified");
}

#[test]
#[ignore = "by hand: just end-clouds"]
fn three_leases_end_and_a_training_goes_on_by_ssh() {
    let _turn = turn();
    openstack_script("up", &["--host-image", "ready"]);
    let site = Site::real();
    let store = Bucket::open();
    let trained: Vec<String> = (1..=3).map(|number| lease_ends(&site, &store, number)).collect();

    let host = TestHost::start("goes-on", &["--gpus", "nvidia:1", "--image", "ready"]);
    let env = TestEnv::new();
    write_parts(&env);
    env.write("b.yaml", &spec("other", &[&host], &with_store(&store, "other")));
    env.accept("b.yaml");
    let begin = Instant::now();
    let run = training("r3");
    let words: Vec<&str> = run.iter().map(String::as_str).collect();
    let run = gpucl(&env, &[&["run", "b.yaml", "--working-dir", EXAMPLE, "--"], words.as_slice()].concat());
    let run = run.exits(0).prints("goes on after step ").prints("trained to step ");
    println!("gpucl run on another provider's host: {:.0} s", begin.elapsed().as_secs_f64());
    assert!(done_twice(&trained[2], &run.stdout, STEPS) <= 1);
    env.run(&["list"]).exits(0).says("no cluster;");
}
