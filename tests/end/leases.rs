//! Ends of real leases on the testbed of Chameleon, with a real store, and nothing of ours on the user's machine; and a training
//! that goes on at another provider.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use gpucl::sandbox::chameleon::User;
use serde_json::{Value, json};

use super::rounds::{TRAIN, kill_all_of};
use crate::chameleon::site::Site;
use crate::hosts::{TestHost, docker, gpucl, mirrors, openstack_script, spec, testbed};
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

/// A host with a lease of its own.
struct Leased<'a> {
    site: &'a Site,
    env: TestEnv,
    server: String,
}

impl<'a> Leased<'a> {
    /// Brings a cluster up that saves below this name.
    fn up(site: &'a Site, store: &Bucket, name: &str) -> Self {
        let env = site.user(User::Alice);
        write_parts(&env);
        let more = format!("{}{}", mirrors(), with_store(store, name));
        env.write(
            "cluster.yaml",
            &format!(
                "name: demo\nprovider:\n  name: chameleon\n  hours: 1\nruntime: docker\nhosts:\n  - node: liqid02\n\
                 ray:\n  head: {{object_store_memory: 100MiB, memory: 500MiB}}\n  \
                 workers: {{per: gpu, cpus: 1, object_store_memory: 100MiB, memory: 500MiB}}\n{more}"
            ),
        );
        env.accept("cluster.yaml");
        let _ = gpucl(&env, &["up", "--yes"]).exits(0).prints("ready:").says("Stand-in GPU");
        let server = site.of_owner(&env).servers[0].id.clone();
        Self { site, env, server }
    }

    /// Runs a shell text on the host as root, not by SSH; returns what it printed.
    fn sh(&self, text: &str) -> String {
        openstack_script("exec", &[&self.server, "sh", "-c", text])
    }

    fn guard(&self) -> Value {
        let text = self.sh("cat /var/lib/gpucl/gpucl-*/end/guard/state.json 2>/dev/null || true");
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Has somebody else shorten the lease, to a whole minute.
    fn ends_in(&self, at_least: Duration) {
        let lease = self.site.of_owner(&self.env).leases[0].id.clone();
        let at = jiff::Timestamp::now() + at_least + Duration::from_secs(59);
        let body = json!({ "end_date": at.strftime("%Y-%m-%d %H:%M").to_string() });
        let (code, answer) = self.site.call(User::Alice, "PUT", &format!("/reservation/v1/leases/{lease}"), &body);
        assert_eq!(code, 200, "{answer}");
    }

    fn log_of_training(&self) -> String {
        let head = "docker ps -q --filter label=gpucl.key=head | head -1";
        self.sh(&format!("docker exec $({head}) cat /tmp/ray/session_latest/logs/job-driver-train.log 2>&1 || true"))
    }

    /// Kills the guard; whether one ran.
    fn kill_guard(&self) -> bool {
        let found = self.sh("pgrep -f 'guard.py run' || true");
        self.sh(&format!("kill -9 {} 2>/dev/null || true", found.split_whitespace().collect::<Vec<_>>().join(" ")));
        !found.trim().is_empty()
    }

    /// Where one of these texts is on the host.
    fn holders(&self, texts: &[&str]) -> Vec<String> {
        let mut exec = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/testbed/openstack/exec"));
        exec.arg(&self.server);
        holders(exec, texts)
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

fn training(name: &str) -> Vec<String> {
    let command = format!(
        "python train.py --name {name} --storage s3://runs/trained --workers 1 --steps {STEPS} --seconds 0.5 --every 100"
    );
    command.split(' ').map(str::to_owned).collect()
}

/// One end: what was saved, and the log of the training that returned.
fn round(site: &Site, store: &Bucket, number: usize) -> String {
    let name = format!("r{number}");
    let begin = Instant::now();
    let at = |what: &str| println!("{name} {:6.1} s  {what}", begin.elapsed().as_secs_f64());
    let leased = Leased::up(site, store, &name);
    let env = &leased.env;
    at("`up` is ready");
    let submit = ["job", "submit", "--no-wait", "--working-dir"];
    let run = training(&name);
    let words: Vec<&str> = run.iter().map(String::as_str).collect();
    let _ = gpucl(env, &[&submit[..], &[EXAMPLE, "--id", "train", "--"], &words].concat()).exits(0);
    let results = ["job", "--id", "results", "--", "python", "results.py", "loop", "/tmp/step"];
    let _ = gpucl(env, &[&submit[..], &results].concat()).exits(0);
    let log = || leased.log_of_training();
    until_or("the training is at work", 180, || log().contains("step 3\n").then_some(()), log);
    leased.ends_in(Duration::from_secs(150));
    let _ = gpucl(env, &["up", "--yes"]).exits(0).prints("ready:");
    println!("{name}: {} processes killed", kill_all_of(env));
    at("nothing of ours runs on the user's machine; the guard knows the end");

    let (mut seen, mut killed) = (Vec::new(), 0);
    let state = until_or(
        "all is saved",
        300,
        || {
            let state = leased.guard();
            let phase = state["phase"].as_str().unwrap_or_default().to_owned();
            if !seen.contains(&phase) {
                at(&phase);
                // A sample of its effects: the guard is killed in each phase, and goes on.
                if number == 2 && matches!(phase.as_str(), "draining" | "saving") && leased.kill_guard() {
                    killed += 1;
                }
                seen.push(phase.clone());
            }
            let ended = state["jobs"]
                .as_array()
                .is_some_and(|jobs| jobs.iter().all(|job| job["status"] != "PENDING" && job["status"] != "RUNNING"));
            (ended && matches!(phase.as_str(), "saved" | "over")).then_some(state)
        },
        || leased.guard().to_string(),
    );
    let left = state["end"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_second();
    let left = left - jiff::Timestamp::now().as_second();
    let there = leased.sh(
        "cd /var/lib/gpucl/gpucl-*/data/results && find . -type f ! -name '*.tmp' ! -name '*.new' -exec sha256sum {} +",
    );
    let last: u32 =
        leased.sh("docker exec $(docker ps -q --filter label=gpucl.key=head) cat /tmp/step").trim().parse().unwrap();
    let trained = leased.log_of_training();
    // The cloud's credentials are nowhere on the host; the store's are where jobs and the guard find them.
    let (_, _, id, secret) = site.login(User::Alice);
    assert_eq!(leased.holders(&[&id, &secret]), [""; 0], "the cloud's credential is on the host");
    let holders = leased.holders(&[SECRET]);
    println!("{name}: the store's key is in {holders:?}");
    assert!(holders.iter().all(|path| path.contains("/secrets/")), "{holders:?}");
    let (saved, there) = (store.held(&format!("runs/{name}")), digests(&there, "./"));
    assert_eq!(saved, there, "what is saved is not what was there: {state}");
    assert!(state["saved"][0]["complete"] == true && !state["drained"].as_array().unwrap().is_empty(), "{state}");
    let newest = saved.keys().filter(|key| key.starts_with("loop/checkpoint-")).max().unwrap();
    let newest: u32 = newest.rsplit('-').next().unwrap().trim_end_matches(".json").parse().unwrap();
    assert!(newest + 1 >= last && newest > 10, "{newest} of {last}: {state}");
    assert!(trained.contains("ended at step "), "{trained}");
    let jobs: Vec<_> =
        state["jobs"].as_array().unwrap().iter().map(|job| format!("{}: {}", job["id"], job["status"])).collect();
    println!(
        "{name}: saved {left} s before the end: {} files, equal digests; last step {last}, newest checkpoint {newest}; guard \
         killed {killed} times; {}",
        saved.len(),
        jobs.join(", ")
    );
    assert!(number != 2 || killed > 0, "the guard was never killed: {state}");
    // The lease ends, and takes the host with it.
    until_or(
        "the lease ends",
        240,
        || site.of_owner(env).servers.is_empty().then_some(()),
        || format!("{:?}", site.of_owner(env)),
    );
    at("the host is gone with its lease");
    let down = gpucl(env, &["down", "--yes"]).exits(0);
    println!("{}", down.stdout);
    assert_eq!(site.of_owner(env).counts(), [0; 4], "{:?}", site.of_owner(env));
    at("`down`: nothing is left");
    trained
}

#[test]
#[ignore = "by hand: just end-leases"]
fn three_leases_end_and_a_training_goes_on_by_ssh() {
    let _turn = turn();
    openstack_script("up", &["--host-image", "ready"]);
    let site = Site::real();
    let store = Bucket::open();
    let trained: Vec<String> = (1..=3).map(|number| round(&site, &store, number)).collect();

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
