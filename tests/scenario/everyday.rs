//! A working day on one cluster: what is declared, jobs, logs, commands, a stop, and another start.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::time::Instant;

use super::processes::{
    a_job_whose_processes_end_at_their_start_says_why_and_holds_up_nobody,
    values_are_literal_and_uv_has_the_python_of_the_node,
};
use crate::support::{Hidden, Outcome, TestEnv, get, interrupt, nodes, tagged_processes, turn, until};

const SPEC: &str = "\
name: day
gpu: declared
ray:
  workers: {count: 1, cpus: 1, gpus: 1}
";

#[test]
fn a_working_day_on_one_cluster() {
    let _turn = turn();
    let env = TestEnv::with_shared_ray();
    env.write("cluster.yaml", SPEC);

    type Story = (&'static str, fn(&TestEnv));
    let stories: &[Story] = &[
        ("up prints json lines and says that gpus are declared", up_prints_json_lines_and_says_that_gpus_are_declared),
        ("every command prints json lines", every_command_prints_json_lines),
        ("the checks are not counted as jobs", the_checks_are_not_counted_as_jobs),
        ("a job runs in its working folder", a_job_runs_in_its_working_folder),
        ("processes that end at their start", a_job_whose_processes_end_at_their_start_says_why_and_holds_up_nobody),
        ("literal values, and uv", values_are_literal_and_uv_has_the_python_of_the_node),
        ("cp and jobs share the data folder", cp_and_jobs_share_the_data_folder),
        ("sync sends what differs", sync_sends_what_differs),
        ("secrets reach the job and nobody else", secrets_reach_the_job_and_nobody_else),
        ("the exit code is the jobs", the_exit_code_is_the_jobs),
        ("the plain ray command line works", the_plain_ray_command_line_works),
        ("ctrl c detaches and the job goes on", ctrl_c_detaches_and_the_job_goes_on),
        ("logs show what nodes print", logs_show_what_nodes_print),
        ("exec hands the exit code on", exec_hands_the_exit_code_on),
        ("a rendering is what up wrote", a_rendering_is_what_up_wrote),
        ("stop keeps the host prepared", stop_keeps_the_host_prepared),
    ];
    for (name, story) in stories {
        let begin = Instant::now();
        story(&env);
        println!("{name}: {:.1} s", begin.elapsed().as_secs_f64());
    }

    // The last job ends, and its hidden processes run until the cluster ends.
    let hidden = Hidden::by_a_job(&env, "day", "hides");
    env.run(&["down", "--yes", "--output", "json"]).exits(0).json();
    assert_eq!(tagged_processes(&env), []);
    assert_eq!(hidden.running(), [0; 0], "what a job has hidden survived `down`");
}

/// The value of the JSON lines of this type.
#[track_caller]
fn only(outcome: &Outcome, kind: &str) -> serde_json::Value {
    let lines = outcome.json();
    let mut found = lines.iter().filter(|line| line["type"] == kind);
    let (one, more) = (found.next(), found.next());
    assert!(one.is_some() && more.is_none(), "not one line of type {kind}:\n{}", outcome.stdout);
    one.cloned().unwrap()
}

fn up_prints_json_lines_and_says_that_gpus_are_declared(env: &TestEnv) {
    let plan = only(&env.run(&["plan", "--output", "json"]).exits(0), "plan");
    assert_eq!(plan["operations"].as_array().unwrap().len(), 3);
    let up = env.run(&["up", "--output", "json"]).exits(0);
    let lines = up.json();
    let gpu = lines.iter().find(|line| line["check"] == "gpu").unwrap();
    assert_eq!((&gpu["outcome"], &gpu["target"]), (&"declared".into(), &"worker-0".into()));
    assert_eq!(gpu["saw"], "1 logical GPU declared, not seen");
    let end = only(&up, "run_finished");
    assert_eq!((&end["finish"], &end["verb"]), (&"done".into(), &"up".into()));
    // And so does the table for people, in plain text where there is no terminal.
    let table = env.run(&["verify"]).exits(0);
    assert!(!table.stderr.contains('\x1b') && !table.stdout.contains('\x1b'), "{table:?}");
    let _ = table.says("declared  gpu              worker-0   1 logical GPU declared, not seen");
}

fn every_command_prints_json_lines(env: &TestEnv) {
    let status = only(&env.run(&["status", "--output", "json"]).exits(0), "cluster");
    assert_eq!((&status["cluster"], &status["phase"]), (&"day".into(), &"ready".into()));
    let pid =
        status["nodes"].as_array().unwrap().iter().find(|node| node["name"] == "worker-0").unwrap()["pid"].clone();
    assert_eq!(pid, nodes(env, "day")["worker0"].0);
    let list = only(&env.run(&["list", "--output", "json"]).exits(0), "cluster");
    assert_eq!(list["nodes"].as_array().unwrap().len(), 2);
    let checks = env.run(&["verify", "--output", "json"]).exits(0).json();
    assert!(checks.iter().filter(|line| line["type"] == "check").all(|line| line["outcome"] != "failed"));
    let plan = only(&env.run(&["plan", "--output", "json"]).exits(0), "plan");
    assert_eq!(plan["operations"], serde_json::json!([]));
    let variables = only(&env.run(&["env", "--output", "json"]).exits(0), "env");
    assert_eq!(variables["variables"]["RAY_AUTH_MODE"], "token");
    assert!(!env.run(&["logs", "head", "--output", "json"]).exits(0).json().is_empty());
    let said = only(&env.run(&["exec", "--output", "json", "--", "echo", "hello"]).exits(0), "exec_line");
    assert_eq!((&said["line"], &said["stream"]), (&"hello".into(), &"out".into()));
    let error = only(&env.run(&["job", "status", "none", "--output", "json"]).exits(6), "error");
    assert_eq!(error["exit_code"], 6);
}

fn the_checks_are_not_counted_as_jobs(env: &TestEnv) {
    env.run(&["job", "list"]).exits(0).is("");
    env.run(&["status"]).exits(0).prints("jobs: none");
    let all = env.run(&["job", "list", "--all", "--output", "json"]).exits(0).json();
    assert!(!all.is_empty() && all.iter().all(|job| job["kind"] == "driver"), "the checks connect by themselves");
}

fn a_job_runs_in_its_working_folder(env: &TestEnv) {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/jobs");
    env.run(&["job", "submit", "--working-dir", examples, "--id", "hello", "--", "python", "hello.py"])
        .exits(0)
        .prints("1 workers answered")
        .says("job hello succeeded");
    env.run(&["job", "logs", "hello"]).exits(0).prints("hello from ");
    env.run(&["job", "status", "hello"]).exits(0).prints("SUCCEEDED");
    env.run(&["job", "list"]).exits(0).prints("hello");
}

fn cp_and_jobs_share_the_data_folder(env: &TestEnv) {
    env.write("in.txt", "from here\n");
    let copied = only(&env.run(&["cp", "in.txt", "head:sets/a/in.txt", "--output", "json"]).exits(0), "copied");
    assert_eq!(copied["bytes"], 10);
    let double = "cat $GPUCL_DATA/sets/a/in.txt $GPUCL_DATA/sets/a/in.txt >$GPUCL_DATA/results.txt";
    env.run(&["job", "submit", "--", "sh", "-c", double]).exits(0).says("succeeded");
    env.run(&["cp", "worker-0:results.txt", "."]).exits(0);
    assert_eq!(std::fs::read_to_string(env.work().join("results.txt")).unwrap(), "from here\nfrom here\n");
    env.run(&["exec", "--", "sh", "-c", "ls $GPUCL_DATA"]).exits(0).is("results.txt\nsets\n");
    env.run(&["env"]).exits(0).prints("export GPUCL_DATA=");
    env.run(&["cp", "in.txt", "head:"]).exits(0);
    env.run(&["cp", "in.txt", "head:../in.txt"]).exits(2).says("leads out of the cluster's data folder");
    env.run(&["cp", "head:none.txt", "."]).exits(6).says("none.txt");
}

fn sync_sends_what_differs(env: &TestEnv) {
    let _ = env.write("set/a b/one.txt", "one\n");
    let _ = env.write("set/two.txt", "two\n");
    let synced = |arguments: &[&str]| only(&env.run(&[arguments, &["--output", "json"]].concat()).exits(0), "synced");
    assert_eq!(synced(&["sync", "set", "head:synced"])["sent"], 2);
    let _ = env.write("set/two.txt", "changed\n");
    env.run(&["sync", "set", "head:synced", "--dry-run"]).exits(0).is("send two.txt\n").says("nothing was done");
    let again = synced(&["sync", "set", "head:synced"]);
    assert_eq!((&again["sent"], &again["unchanged"]), (&1.into(), &1.into()));
    let job = "cd $GPUCL_DATA/synced && cat 'a b/one.txt' two.txt && rm -r 'a b' && echo new >results.txt";
    env.run(&["job", "submit", "--", "sh", "-c", job]).exits(0).prints("one\nchanged\n");
    env.run(&["sync", "head:synced", "back/"]).exits(0).says("synced: 2 files sent");
    let back = synced(&["sync", "head:synced", "set", "--delete"]);
    assert_eq!((&back["sent"], &back["deleted"], &back["unchanged"]), (&1.into(), &2.into(), &1.into()));
    assert_eq!(std::fs::read_to_string(env.work().join("set/results.txt")).unwrap(), "new\n");
    std::fs::create_dir(env.work().join("empty")).unwrap();
    env.run(&["sync", "empty", "head:synced", "--delete"]).exits(2).says("--yes");
    env.run(&["sync", "empty", "head:synced", "--delete", "--yes"]).exits(0).says("2 deleted");
    env.run(&["sync", "set", "head:../x"]).exits(2).says("leads out of the cluster's data folder");
    env.run(&["sync", "head:none", "back"]).exits(6).says("does not exist");
    env.run(&["exec", "--", "sh", "-c", "rm -r $GPUCL_DATA/synced"]).exits(0);
}

/// The driver, a task, and an actor print digests of what they have.
const DIGESTS: &str = "\
import hashlib, os, ray, time
def digest(): return hashlib.sha256(os.environ.get('TOKEN', '').encode()).hexdigest()[:16]
ray.init()
@ray.remote
def task(): return digest()
@ray.remote
class Actor:
    def ask(self): return digest()
own = ray.remote(runtime_env={'env_vars': {'MORE': '1'}})(digest)
print('driver', digest(), 'task', ray.get(task.remote()), 'actor', ray.get(Actor.remote().ask.remote()), flush=True)
print('own', ray.get(own.remote()), flush=True)
time.sleep(float(os.environ.get('SECONDS', '0')))
";

fn secrets_reach_the_job_and_nobody_else(env: &TestEnv) {
    const VALUE: &str = "v3ry 's3cret' \"value\" $HOME";
    let with_input = |arguments: &[&str], input: &str| {
        let mut command = env.command(arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    with_input(&["secret", "set", "MY_TOKEN"], &format!("{VALUE}\n"));
    env.run(&["secret", "list"]).exits(0).is("MY_TOKEN\n");
    let _ = env.write("code/digests.py", DIGESTS);
    let job = ["job", "submit", "--working-dir", "code", "--secret", "MY_TOKEN=TOKEN"];
    let digest = gpucl::util::digest::short(VALUE.as_bytes());
    env.run(&[&job[..], &["--id", "secret-1", "--", "python", "digests.py"]].concat())
        .exits(0)
        .prints(&format!("driver {digest} task {digest} actor {digest}"))
        .prints(&format!("own {digest}"));
    let secrets = data_folder(env).join(".gpucl-secrets");
    assert!(!secrets.exists(), "it is gone when the job has ended");
    // While a job has it, it is nowhere else.
    let job =
        [&job[..], &["--env", "SECONDS=60", "--no-wait", "--id", "secret-2", "--", "python", "digests.py"]].concat();
    env.run(&job).exits(0);
    until("the second job to have its secret", 60, || {
        env.run(&["job", "logs", "secret-2"]).stdout.contains("own").then_some(())
    });
    let found = std::fs::read_dir(&secrets).unwrap().next().unwrap().unwrap().path();
    for (path, mode) in [(secrets.as_path(), 0o700), (found.as_path(), 0o600)] {
        assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, mode, "{}", path.display());
    }
    let api = env.run(&["job", "list", "--all", "--output", "json"]).exits(0).stdout;
    let variables = only(&env.run(&["env", "--output", "json"]).exits(0), "env")["variables"].clone();
    let path = variables["RAY_AUTH_TOKEN_PATH"].as_str().unwrap().replace("$TEST", &env.root().display().to_string());
    let token = std::fs::read_to_string(path).unwrap();
    let url = format!("{}/api/jobs/secret-2", variables["RAY_API_SERVER_ADDRESS"].as_str().unwrap());
    let (_, raw) = get(&url, &[("Authorization", &format!("Bearer {}", token.trim()))]).unwrap();
    assert!(raw.contains("GPUCL_SECRETS"), "{raw}");
    for text in [api, raw, env.run(&["status", "--output", "json"]).stdout] {
        assert!(!text.contains("s3cret"), "{text}");
    }
    let mut holders = Vec::new();
    files_with(env.root(), b"s3cret", &mut holders);
    let credentials = env.home().join(".config/gpucl/credentials.yaml");
    holders.retain(|path| *path != found && *path != credentials);
    assert_eq!(holders, [] as [std::path::PathBuf; 0], "logs, packages, state and events are without it");
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&line).contains("v3ry"), "{}", process.path().display());
    }
    // A job that was not given it does not have it.
    env.run(&["job", "submit", "--", "sh", "-c", "echo has ${TOKEN:-none}"]).exits(0).prints("has none");
    env.run(&["job", "stop", "secret-2"]).exits(0);
    assert!(!secrets.exists(), "it is gone when the job was stopped");
    env.run(&["job", "submit", "--secret", "MY_TOKEM", "--", "true"])
        .exits(2)
        .says("did you mean `MY_TOKEN`?")
        .says("gpucl secret set MY_TOKEM");
    env.run(&["job", "submit", "--secret", "MY_TOKEN", "--env", "MY_TOKEN=x", "--", "true"]).exits(2).says("set twice");
    env.run(&["secret", "rm", "MY_TOKEN"]).exits(0);
    env.run(&["secret", "rm", "MY_TOKEN"]).exits(6);
}

/// The data folder of the only cluster, on this machine.
fn data_folder(env: &TestEnv) -> std::path::PathBuf {
    let hosts = env.home().join(".local/share/gpucl/hosts");
    let mut folders = std::fs::read_dir(hosts).unwrap().map(|entry| entry.unwrap().path().join("data"));
    folders.find(|folder| folder.is_dir()).unwrap()
}

/// The files below a folder that hold these bytes.
fn files_with(folder: &std::path::Path, bytes: &[u8], found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            files_with(&path, bytes, found);
        } else if kind.is_file() {
            let text = std::fs::read(&path).unwrap_or_default();
            if text.windows(bytes.len()).any(|window| window == bytes) {
                found.push(path);
            }
        }
    }
}

fn the_exit_code_is_the_jobs(env: &TestEnv) {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/jobs/fail.py");
    env.run(&["job", "submit", "--id", "fails", "--", "python", program])
        .exits(3)
        .prints("this job fails on purpose")
        .says("job fails failed");
    let job = only(&env.run(&["job", "status", "fails", "--output", "json"]).exits(0), "job");
    assert_eq!((&job["status"], &job["exit_code"]), (&"FAILED".into(), &3.into()));
}

fn the_plain_ray_command_line_works(env: &TestEnv) {
    let gpucl = env!("CARGO_BIN_EXE_gpucl");
    let script = format!(
        "set -e\neval \"$('{gpucl}' env)\"\ncommand -v ray\nray job submit --submission-id by-ray -- echo 'said by ray'\n\
         ray job list\nray status\neval \"$('{gpucl}' env --unset)\"\nif command -v ray; then exit 9; fi\nenv | grep RAY_ || true\n"
    );
    let mut command = env.command(&[]);
    let variables: Vec<_> =
        command.get_envs().map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned))).collect();
    command = Command::new("bash");
    command.env_clear().current_dir(env.work()).args(["-c", &script]).stdin(Stdio::null());
    for (name, value) in variables {
        command.env(name, value.unwrap_or_default());
    }
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "stdout:\n{out}\nstderr:\n{err}");
    let first = out.lines().next().unwrap_or_default();
    assert!(first.contains("/gpucl/environments/ray-"), "`ray` is not the environment's: {first}");
    assert!(out.contains("said by ray") && out.contains("'by-ray' succeeded"), "{out}");
    assert!(out.contains("submission_id='fails'") && out.contains("submission_id='by-ray'"), "{out}");
    assert!(out.contains("Active:") && out.contains("0.0/1.0 GPU"), "`ray status` shows the cluster: {out}");
    assert!(!out.contains("RAY_AUTH_TOKEN"), "{out}");
    env.run(&["job", "status", "by-ray"]).exits(0).prints("SUCCEEDED");
}

fn ctrl_c_detaches_and_the_job_goes_on(env: &TestEnv) {
    let stop = env.work().join("stop");
    let program = format!(
        "import os, time\nprint('begun', flush=True)\nwhile not os.path.exists({:?}): time.sleep(0.1)\n",
        stop.display().to_string()
    );
    let arguments = ["job", "submit", "--id", "long", "--", "python", "-c", &program];
    let mut child = env.command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.map(Result::unwrap).any(|line| line == "begun"), "the job ended without a word");
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("detached: job long continues"), "{said}");
    env.run(&["job", "status", "long"]).exits(0).prints("RUNNING");
    env.run(&["status"]).exits(0).prints("1 running");
    env.run(&["job", "stop", "long"]).exits(0).says("job long was stopped");
    env.run(&["job", "status", "long"]).exits(0).prints("STOPPED");
    env.run(&["job", "stop", "long"]).exits(0).says("nothing to stop");
    env.run(&["job", "logs", "lon"]).exits(6).says("did you mean `long`?");
}

fn logs_show_what_nodes_print(env: &TestEnv) {
    env.run(&["logs", "head"]).exits(0).prints("Ray runtime started");
    let tail = env.run(&["logs", "worker-0", "-n", "5"]).exits(0).stdout;
    assert_eq!(tail.lines().count(), 5, "{tail}");
    assert!(env.run(&["logs", "worker-0"]).exits(0).stdout.ends_with(&tail));
    env.run(&["logs"]).exits(0).prints("head      | ").prints("worker-0  | ");
    env.run(&["logs", "worker-7"]).exits(6).says("there are: head, worker-0, supervisor");
    // A follow continues until it is interrupted.
    let mut follow = env.command(&["logs", "head", "-n", "1", "--follow"]).stdout(Stdio::piped()).spawn().unwrap();
    let line = BufReader::new(follow.stdout.as_mut().unwrap()).lines().next().unwrap().unwrap();
    assert!(!line.is_empty());
    interrupt(&follow);
    assert_eq!(follow.wait().unwrap().code(), Some(130));
}

fn exec_hands_the_exit_code_on(env: &TestEnv) {
    env.run(&["exec", "--", "python", "-c", "import ray; print(ray.__version__)"]).exits(0).is("2.60.0\n");
    env.run(&["exec", "--", "python", "-c", "import sys; print('to stderr', file=sys.stderr); sys.exit(7)"])
        .exits(7)
        .says("to stderr");
    env.run(&["exec", "--", "no-such-program"]).exits(127);
}

/// What is rendered for a cluster that runs is, byte for byte, what lies on its host; but for the token.
fn a_rendering_is_what_up_wrote(env: &TestEnv) {
    env.run(&["render", "--to", "seen"]).exits(0);
    let host = std::fs::read_dir(env.home().join(".local/share/gpucl/hosts")).unwrap().next().unwrap().unwrap().path();
    for name in ["reaper.py", "node.py", "probe.py", "host.py", "nodes.json"] {
        let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap();
        assert_eq!(read(env.work().join("seen/host-0").join(name)), read(host.join(name)), "{name}");
    }
    let token = std::fs::read_to_string(host.join("secrets/ray_token")).unwrap();
    assert!(token.trim().len() >= 32);
    for file in ["secrets/ray_token", "prepare.sh", "deploy.sh", "checks.sh", "nodes.json"] {
        let text = std::fs::read_to_string(env.work().join("seen/host-0").join(file)).unwrap();
        assert!(!text.contains(token.trim()), "{file} holds the token");
    }
    assert_eq!(std::fs::read_to_string(env.work().join("seen/plan.txt")).unwrap(), "nothing to change\n");
}

fn stop_keeps_the_host_prepared(env: &TestEnv) {
    let hosts = env.home().join(".local/share/gpucl/hosts");
    let host = std::fs::read_dir(&hosts).unwrap().next().unwrap().unwrap().path();
    let made = |name: &str| std::fs::metadata(host.join(name)).unwrap().modified().unwrap();
    let before = (made("claim.json"), made("prepared/prepare"));
    env.run(&["stop"]).exits(0).prints("stopped: no node runs; kept: host host-0");
    assert_eq!(tagged_processes(env), [], "nothing runs after `stop`");
    env.run(&["status"]).exits(0).prints("day: stopped");
    env.run(&["stop"]).exits(0).prints("stopped: no node runs");
    env.run(&["job", "list"]).exits(6).says("it is not running");
    env.run(&["verify"]).exits(3).says("not asked, as these do not run: head worker0");
    let plan = env.run(&["plan"]).exits(0).stdout;
    assert!(!plan.contains("acquire") && !plan.contains("prepare"), "the host is kept and prepared: {plan}");
    let again = env.run(&["up"]).exits(0).prints("1 operation");
    assert!(!again.stderr.contains("create the Ray environment: done"), "{}", again.stderr);
    assert_eq!((made("claim.json"), made("prepared/prepare")), before, "the host was made anew");
    env.run(&["job", "list"]).exits(0).is("");
}
