//! Obstacles to a Ray environment: Python, the package index, an interruption.

use super::tools::{Running, state_folder};
use super::tools::{
    SPEC, contents, down_leaves_nothing, kill, process, processes, real_python, runs, signal, status, tools, until,
};
use crate::support::{TestEnv, turn};
use rustix::process::Signal;

/// Of the index that is behind a login.
const PASSWORD: &str = "pass-4-word";

/// `up` fails in a step of the preparation; what is there is said, and goes with `down`.
#[track_caller]
fn up_fails_in(env: &TestEnv, step: &str, says: &[&str]) {
    let _ = env.write("cluster.yaml", SPEC);
    let mut outcome = env.run(&["up"]).exits(1).says(&format!("error: failed to prepare host-0: step `{step}`\n"));
    for text in says {
        outcome = outcome.says(text);
    }
    let outcome = outcome
        .says("left behind: host-0\n")
        .says("hint: gpucl up $TEST/work/cluster.yaml   # goes on from here\n")
        .says("hint: gpucl down -c t   # removes what is there\n");
    for (path, bytes) in contents(&env.home()) {
        assert!(!String::from_utf8_lossy(&bytes).contains(PASSWORD), "{} holds the index's password", path.display());
    }
    assert!(!format!("{}{}", outcome.stdout, outcome.stderr).contains(PASSWORD), "{}", outcome.stderr);
    assert_eq!(status(env)["phase"], "unfinished");
    let environments = env.home().join(".cache/gpucl/environments");
    let made = std::fs::read_dir(&environments).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir());
    assert_eq!(made.count(), 0, "half an environment is left");
    assert_eq!(processes(env), [], "something runs");
    let _ = down_leaves_nothing(env);
}

#[test]
fn no_python3() {
    let mut env = TestEnv::new();
    tools(&mut env, None, None);
    up_fails_in(
        &env,
        "find a suitable Python",
        &["Caused by: python3 is missing\n", "hint: sudo apt-get install python3 python3-venv\n"],
    );
}

#[test]
fn python3_that_is_too_old() {
    let mut env = TestEnv::new();
    tools(&mut env, Some("echo '3.8.10 /usr/bin/python3'"), None);
    up_fails_in(
        &env,
        "find a suitable Python",
        &[
            "Caused by: python3 is too old (3.8.10): Ray 2.60.0 needs 3.10 to 3.13\n",
            "hint: sudo apt-get install python3.12 python3.12-venv",
        ],
    );
}

#[test]
fn a_package_index_that_cannot_be_reached() {
    let mut env = TestEnv::new();
    tools(&mut env, Some(&format!("exec '{}' \"$@\"", real_python().display())), None);
    // Nobody listens on the port of `discard`, and nothing is found anywhere else.
    let index = format!("http://someone:{PASSWORD}@127.0.0.1:9/simple");
    for (name, value) in [
        ("PIP_CONFIG_FILE", "/dev/null"),
        ("PIP_INDEX_URL", index.as_str()),
        ("PIP_EXTRA_INDEX_URL", ""),
        ("PIP_FIND_LINKS", ""),
        ("PIP_RETRIES", "0"),
        ("NO_PROXY", "*"),
    ] {
        env.set(name, value);
    }
    up_fails_in(
        &env,
        "create the Ray environment",
        &[
            "1: the package index cannot be reached\n",
            "its last lines were",
            "hint: check the network",
            "PIP_INDEX_URL",
        ],
    );
}

/// gpucl and the program that installs are killed in the middle; `uv` is played by a script that stops in the middle,
/// and then takes Ray from the environment that the tests share.
#[test]
fn an_install_that_is_cut_in_the_middle() {
    let _turn = turn();
    let shared = shared_ray();
    let mut env = TestEnv::new();
    let python = real_python();
    let uv = format!(
        r#"case "$1" in
  --version) echo "uv 0.0.0" ;;
  venv) for folder; do :; done; exec '{python}' -m venv --without-pip "$folder" ;;
  pip)
    while [ "$1" != --python ]; do shift; done
    site=$("$2" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    mkdir "$site/ray"
    touch '{root}/in-the-middle'
    while [ ! -e '{root}/open' ]; do sleep 0.1; done
    rmdir "$site/ray"
    echo '{shared}' >"$site/shared.pth" ;;
esac"#,
        python = python.display(),
        root = env.root().display(),
        shared = shared.display()
    );
    tools(&mut env, Some(&format!("exec '{}' \"$@\"", python.display())), Some(&uv));
    let _ = env.write("cluster.yaml", SPEC);

    let up = Running::start(&env, &["up"]);
    until("the installation", 60, || env.root().join("in-the-middle").exists().then_some(()));
    let (up_pid, runner) = (up.pid(), process(&env, "/run.sh").unwrap());
    let follower = process(&env, "/bin/sh -s").unwrap();
    signal(up_pid, Signal::KILL);
    // It would end what the program has begun, and with it what is to be found.
    kill(follower);
    kill(runner);
    drop(up);
    assert!(!runs(up_pid));
    let environment = std::fs::read_dir(env.home().join(".cache/gpucl/environments")).unwrap().flatten();
    let environment = environment.map(|entry| entry.path()).find(|path| path.is_dir()).unwrap();
    assert!(!environment.join(".complete").exists(), "half an environment is not called whole");

    // What was cut is ended before it is begun again.
    let up = Running::start(&env, &["up"]);
    up.says("[create the Ray environment]", 30);
    std::fs::write(env.root().join("open"), "").unwrap();
    let _ = up.end(120).exits(0).says("removing an environment that was never completed");
    let _ = env.run(&["verify"]).exits(0).prints("ready: 8 checks passed");
    assert!(environment.join(".complete").exists());
    assert!(state_folder(&env).exists());
    let _ = down_leaves_nothing(&env);
}

/// The folder of the packages in the environment that tests share; it is made when it is not there yet.
fn shared_ray() -> std::path::PathBuf {
    let env = TestEnv::with_shared_ray();
    let _ = env.write("cluster.yaml", super::tools::SLEEPERS);
    super::tools::node_script(&env, "raise SystemExit(1)\n");
    let _ = env.run(&["up"]).exits(1);
    let state = std::fs::read_to_string(state_folder(&env).join("snapshot.json")).unwrap();
    let state: serde_json::Value = serde_json::from_str(&state).unwrap();
    let environment = state["state"]["items"]["host0"]["notes"]["ray_env"].as_str().unwrap();
    let python = std::path::Path::new(environment).join("bin/python");
    let script = "import sysconfig; print(sysconfig.get_path('purelib'))";
    let output = std::process::Command::new(python).args(["-c", script]).output().unwrap();
    let _ = down_leaves_nothing(&env);
    String::from_utf8(output.stdout).unwrap().trim().into()
}
