//! News of a cluster reaches a webhook while no command runs: each thing once, whatever happens to the agent and to the
//! webhook, which is a server of the test.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gpucl::name::Key;
use gpucl::state::{ClusterState, ItemKind, Record};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{folder, gone, log, mode, signal, spec, started_again};
use crate::chameleon::site::Site;
use crate::support::{TestEnv, turn, until_or};

/// What is in the URL of the webhook, and must be nowhere else.
const SECRET: &str = "T0K3N-of-the-webhook";

/// A webhook of the test's own.
struct Webhook {
    url: String,
    seen: Arc<Mutex<Vec<Value>>>,
}

impl Webhook {
    /// One that takes all; or, if it hangs, answers nobody.
    fn start(hangs: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/services/{SECRET}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&seen);
        std::thread::spawn(move || {
            let mut open = Vec::new();
            for mut stream in listener.incoming().flatten() {
                if hangs {
                    open.push(stream);
                } else if let Some(notice) = taken(&mut stream) {
                    all.lock().unwrap().push(notice);
                }
            }
        });
        Self { url, seen }
    }

    /// Writes it into a private file beside the spec.
    fn write(&self, env: &TestEnv) {
        env.write("webhook", &format!("{}\n", self.url));
        let path = env.work().join("webhook");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn events(&self) -> Vec<String> {
        let seen = self.seen.lock().unwrap();
        seen.iter().map(|notice| notice["event"].as_str().unwrap().to_owned()).collect()
    }

    #[track_caller]
    fn until(&self, env: &TestEnv, event: &str) -> Value {
        let found = || self.seen.lock().unwrap().iter().find(|notice| notice["event"] == event).cloned();
        until_or(event, 60, found, || format!("{:?}\n{}", self.events(), log(env)))
    }
}

fn taken(stream: &mut TcpStream) -> Option<Value> {
    let mut text = String::new();
    while !text.ends_with('}') {
        let mut piece = [0; 4096];
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return None,
            Ok(read) => text.push_str(&String::from_utf8_lossy(&piece[..read])),
        }
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").ok()?;
    serde_json::from_str(text.split_once("\r\n\r\n")?.1).ok()
}

/// Writes down that it has been ready for two hours.
fn was_ready(env: &TestEnv) {
    let path = folder(env).join("snapshot.json");
    let mut snapshot: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let mut state: ClusterState = serde_json::from_value(snapshot["state"].clone()).unwrap();
    let (key, then) = (Key::project(0), jiff::Timestamp::now() - Duration::from_secs(7200));
    state.apply(Record::Requested { key: key.clone(), kind: ItemKind::Project, digest: String::new() }, then);
    state.apply(Record::Exists { key: key.clone(), id: "project".to_owned() }, then);
    state.apply(Record::Ready { key }, then);
    state.apply(Record::ClusterReady, then);
    snapshot["state"] = serde_json::to_value(state).unwrap();
    std::fs::write(&path, snapshot.to_string()).unwrap();
}

fn ends_in(env: &TestEnv, seconds: u64) {
    let path = folder(env).join("deadline.json");
    let mut limits: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    limits["at"] = (jiff::Timestamp::now() + Duration::from_secs(seconds)).to_string().into();
    std::fs::write(path, limits.to_string()).unwrap();
}

/// The files below a folder that have this text in them.
fn with_text(folder: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for path in std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if path.is_dir() && !path.is_symlink() {
            found.extend(with_text(&path, text));
        } else if std::fs::read(&path).is_ok_and(|bytes| bytes.windows(text.len()).any(|part| part == text.as_bytes()))
        {
            found.push(path.file_name().unwrap().to_string_lossy().into_owned());
        }
    }
    found.sort();
    found
}

const NOTIFY: &str =
    "deadline: 3h\nend: { save: [{ from: results, to: here:results }] }\nnotify: { webhook: { file: webhook } }";

#[test]
fn news_comes_once_though_the_agent_is_killed_and_the_url_is_in_one_private_file() {
    let (site, webhook) = (Site::stand_in(), Webhook::start(false));
    let env = &site.env;
    webhook.write(env);
    let file = spec(&site, NOTIFY);
    let place = webhook.url.split('/').nth(2).unwrap();
    let refused = site.run(&["up", "--yes", &file]).exits(2);
    let refused =
        refused.says(&format!("sends from this machine: news of the cluster, without logs and secrets, to {place}"));
    env.accept(&file);
    let planned = site.run(&["plan", &file]).exits(0);
    let up = site.run(&["up", "--yes", &file]).exits(1).says("failed to connect to host-0");
    let kept = folder(env).join("secrets/notify.json");
    assert_eq!((mode(&kept), mode(kept.parent().unwrap())), (0o600, 0o700));
    let mut output = [refused, planned, up].map(|outcome| outcome.stdout + &outcome.stderr).join("\n");

    was_ready(env);
    ends_in(env, 14 * 60);
    let soon = webhook.until(env, "ends_soon");
    assert_eq!((&soon["v"], &soon["cluster"], &soon["why"]), (&json!(1), &json!("demo"), &json!("deadline")));
    assert!(soon["text"].as_str().unwrap().starts_with("demo ends in 14 minutes, at "), "{soon}");
    let killed = signal(env, Signal::KILL);
    let _ = site.run(&["list"]).exits(0);
    started_again(env, killed);
    let jobs = json!({"version": 1, "before": ["old"], "ended": [["job-1", "FAILED"]]});
    std::fs::write(folder(env).join("jobs-seen.json"), jobs.to_string()).unwrap();
    let job = webhook.until(env, "job_ended");
    assert_eq!((&job["job"], &job["how"]), (&json!("job-1"), &json!("failed")));
    output += &site.run(&["status", "--output", "json", "-c", "demo"]).stdout;
    assert_eq!(webhook.events(), ["ends_soon", "job_ended"]);
    assert_eq!(with_text(env.root(), SECRET), ["notify.json", "webhook"]);
    output += &log(env);

    ends_in(env, 2);
    let not_saved = webhook.until(env, "not_saved");
    println!("{not_saved}");
    assert!(not_saved["text"].as_str().unwrap().starts_with("the end of demo has come, and "), "{not_saved}");
    let down = webhook.until(env, "down");
    assert_eq!((&down["left"], &down["cost"]), (&json!([]), &json!("0.01 SU")), "{down}");
    gone(&site);
    let mut events = webhook.events();
    events.sort();
    // The end that was brought so near may be announced as well.
    events.dedup();
    assert_eq!(events, ["down", "ends_soon", "job_ended", "not_saved"]);
    assert_eq!(with_text(env.root(), SECRET), ["webhook"]);
    assert!(!output.contains(SECRET), "{output}");
}

#[test]
fn a_webhook_that_hangs_holds_up_nothing() {
    let (site, webhook) = (Site::stand_in(), Webhook::start(true));
    webhook.write(&site.env);
    let file = spec(&site, NOTIFY);
    site.env.accept(&file);
    let _ = site.run(&["up", "--yes", &file]).exits(1);
    was_ready(&site.env);
    ends_in(&site.env, 3);
    let begun = Instant::now();
    gone(&site);
    let took = begun.elapsed();
    println!("taken down in {:.1} s, with a deadline of 3 s", took.as_secs_f64());
    assert!(took < Duration::from_secs(25), "{took:?}");
}

#[test]
fn down_says_that_a_webhook_hangs_and_ends_well() {
    let (site, webhook) = (Site::stand_in(), Webhook::start(true));
    webhook.write(&site.env);
    let file = spec(&site, NOTIFY);
    site.env.accept(&file);
    let _ = site.run(&["up", "--yes", &file]).exits(1).says("failed to connect to host-0");
    let down = site.run(&["down", "--yes", "-c", "demo"]).exits(0);
    let _ = down.says("has not taken the news yet (no answer within 3 s)");
    assert_eq!(site.ours().counts(), [0; 4]);
}

/// From `up` to `down` on this machine, with a program in place of a webhook.
#[test]
#[ignore = "by hand: just end-troubles"]
fn a_real_cluster_says_that_it_is_ready_what_became_of_its_job_and_that_it_is_down() {
    let _turn = turn();
    let env = TestEnv::with_shared_ray();
    env.write("notify.sh", "#!/bin/sh\ncat >> news.jsonl && echo >> news.jsonl\n");
    let program = env.work().join("notify.sh");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    env.write(
        "cluster.yaml",
        "name: demo\ntimeouts: {start: 4m, ready: 4m}\nray: {head: {object_store_memory: 80MiB}, workers: {count: 1, \
         cpus: 1, memory: 300MiB, object_store_memory: 80MiB}}\nnotify: {command: [./notify.sh]}\n",
    );
    let _ = env.run(&["up", "--yes"]).exits(2).says("runs on this machine: `./notify.sh`, with news of the cluster");
    env.accept("cluster.yaml");
    let _ = env.run(&["up"]).exits(0);
    let news = || -> Vec<Value> {
        let text = std::fs::read_to_string(env.work().join("news.jsonl")).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    let until = |event: &str, limit| {
        let found = || news().into_iter().find(|notice| notice["event"] == event);
        until_or(event, limit, found, || format!("{:?}\n{}", news(), log(&env)))
    };
    println!("{}", until("ready", 10)["text"]);
    let again = env.run(&["up"]).exits(0).stdout;
    assert!(again.contains("nothing was changed"), "{again}");
    until_or("the first look", 60, || folder(&env).join("jobs-seen.json").exists().then_some(()), || log(&env));
    // Nobody follows this one: the agent knows of its end after a look, for which it would take its time.
    let _ = env.run(&["job", "submit", "--no-wait", "--id", "alone", "--", "true"]).exits(0);
    let look = || {
        let _ = env.run(&["agent", "--look-at-end", "-c", "demo"]).exits(0);
        news().into_iter().find(|notice| notice["event"] == "job_ended")
    };
    let job = until_or("the job has ended", 90, look, || format!("{:?}\n{}", news(), log(&env)));
    println!("{}", job["text"]);
    let _ = env.run(&["down", "--yes"]).exits(0);
    println!("{}", until("down", 10)["text"]);
    let events: Vec<String> = news().iter().map(|notice| notice["event"].as_str().unwrap().to_owned()).collect();
    assert_eq!(events, ["ready", "job_ended", "down"]);
}
