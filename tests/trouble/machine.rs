//! The machine: its disk, its ports, its restarts, its numbers for processes.

use std::net::TcpListener;
use std::process::Command;

use gpucl::util::process::{Identity, boot_id};

use super::tools::{
    SLEEPER, SLEEPERS, SPEC, contents, down_leaves_nothing, edit_state, kill, kill_all, node_script, nothing_left,
    pids, processes, real_python, runs, state_folder, status, supervisor, tools, until,
};
use crate::support::TestEnv;

/// `gpucl up` with a disk of this size in the place of a folder of the home. Some kernels let only root mount one, so
/// that these tests are a testbed's.
fn up_with_small_disk(env: &TestEnv, folder: &str, size: &str, fill: &str) -> std::process::Output {
    with_disk(env, folder, size, fill, "up")
}

/// The same with any command.
fn with_disk(env: &TestEnv, folder: &str, size: &str, fill: &str, verb: &str) -> std::process::Output {
    let folder = env.home().join(folder);
    std::fs::create_dir_all(&folder).unwrap();
    let script =
        format!("mount -t tmpfs -o size={size} none \"$0\" && cd \"$0\" && {fill} cd \"$1\" && shift && exec \"$@\"");
    let real = env.command(&[verb]);
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]).arg(folder).arg(env.work()).arg(real.get_program()).arg(verb);
    command.env_clear().envs(real.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.current_dir(env.work()).output().unwrap()
}

#[test]
#[ignore = "testbed"]
fn a_disk_that_is_too_small_for_ray() {
    let mut env = TestEnv::new();
    tools(&mut env, Some(&format!("exec '{}' \"$@\"", real_python().display())), None);
    let _ = env.write("cluster.yaml", SPEC);
    let output = up_with_small_disk(&env, ".cache", "8m", "");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let folder = env.home().join(".cache/gpucl/environments").display().to_string();
    for text in [
        "error: failed to prepare host-0: step `check the disk`\n".to_owned(),
        format!("Caused by: only 8 MiB are free in {folder}, and the Ray environment needs 1536 MiB\n"),
        "left behind: host-0\n".to_owned(),
        format!("hint: make room there (df -h '{folder}'), or set XDG_CACHE_HOME to a folder on a larger disk\n"),
    ] {
        assert!(said.contains(&text), "not said: {text}\n{said}");
    }
    let _ = down_leaves_nothing(&env);
}

/// Before anything is downloaded, and `doctor` says the same.
#[test]
#[ignore = "testbed"]
fn a_disk_without_room_for_the_files_or_without_programs() {
    let mut env = TestEnv::new();
    tools(&mut env, Some(&format!("exec '{}' \"$@\"", real_python().display())), None);
    let _ = env.write("cluster.yaml", SPEC);
    let folder = env.home().join(".cache/gpucl/environments").display().to_string();
    for (disk, up, doctor) in [
        (
            "4g,nr_inodes=6000",
            format!("more files fit on the file system of {folder}, and the Ray environment has 21000\n"),
            "more fit on the file system of",
        ),
        (
            "4g,noexec",
            format!("Caused by: programs in {folder} cannot be run: its file system is mounted with `noexec`"),
            "its file system is mounted with `noexec`",
        ),
    ] {
        let output = up_with_small_disk(&env, ".cache", disk, "");
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("error: failed to prepare host-0: step `check the disk`\n"), "{said}");
        assert!(said.contains(&up), "not said: {up}\n{said}");
        let output = with_disk(&env, ".cache", disk, "", "doctor");
        let said = String::from_utf8(output.stdout).unwrap();
        let line = said.lines().find(|line| line.contains(doctor)).unwrap_or_else(|| panic!("{doctor}: {said}"));
        assert!(line.contains("missing") && output.status.code() == Some(1), "{said}");
        let _ = down_leaves_nothing(&env);
    }
}

/// The disk that the journal is on is full: nothing is done that cannot be written down. When it is lost altogether,
/// tags are enough for `down`.
#[test]
#[ignore = "testbed"]
fn a_disk_that_is_full_under_the_state() {
    let mut env = TestEnv::new();
    tools(&mut env, None, None);
    let _ = env.write("cluster.yaml", SPEC);
    let mut full = 0;
    // From no room at all to enough of it, page by page.
    for ballast in (40..=64).rev().step_by(4) {
        let fill = format!("head -c {ballast}k /dev/zero >ballast;");
        let output = up_with_small_disk(&env, ".local/state", "64k", &fill);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        if said.contains("No space left on device") {
            assert!(said.contains("\nhint: "), "{said}");
            full += 1;
        } else {
            assert!(said.contains("python3 is missing"), "{said}");
        }
        // The small disk went with the command, and the state with it.
        let left = !processes(&env).is_empty() || env.home().join(".local/share/gpucl/hosts").exists();
        let down = env.run(&["down", "-c", "t"]);
        let _ = if left { down.exits(0).says("the cluster's state is lost") } else { down.exits(6) };
        nothing_left(&env);
    }
    assert!(full >= 2, "the disk was full {full} times");
}

#[test]
fn a_dashboard_port_that_is_taken() {
    let env = TestEnv::with_shared_ray();
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let _ = env.write("cluster.yaml", &format!("name: t\nray: {{head: {{dashboard_port: {port}}}}}\n"));
    let _ = env
        .run(&["up"])
        .exits(1)
        .says(&format!("error: failed to use port {port} for the dashboard (ray.head.dashboard_port)\n"))
        .says(&format!("Caused by: process {} (`", std::process::id()))
        .says(
            "hint: end that process, name another port, or leave `dashboard_port` out: then gpucl finds a free one\n",
        );
    assert!(!state_folder(&env).exists(), "nothing was begun");
    nothing_left(&env);
}

#[test]
fn ports_in_use_are_skipped() {
    let env = TestEnv::with_shared_ray();
    let _ = env.write("cluster.yaml", SLEEPERS);
    node_script(&env, SLEEPER);
    // Which ports it would take follows from its tag.
    let owner = "abcd1234";
    std::fs::create_dir_all(env.home().join(".config/gpucl")).unwrap();
    std::fs::write(env.home().join(".config/gpucl/owner"), owner).unwrap();
    let head = |env: &TestEnv| {
        let _ = env.run(&["up"]).exits(7);
        let state: serde_json::Value =
            serde_json::from_slice(&std::fs::read(state_folder(env).join("snapshot.json")).unwrap()).unwrap();
        state["state"]["items"]["host0"]["notes"]["ports"]["blocks"]["head"].as_u64().unwrap()
    };
    let would = head(&env);
    let _ = down_leaves_nothing(&env);
    let taken = TcpListener::bind(("127.0.0.1", u16::try_from(would + 50).unwrap())).unwrap();
    let base = head(&env);
    assert_ne!(base, would, "ports that somebody listens on were taken");
    assert_eq!(base % 100, 0);
    let _ = down_leaves_nothing(&env);
    drop(taken);
}

/// What a restart of the machine leaves: no process, no runtime folder, and the numbers of another boot in the state.
fn restart_machine(env: &TestEnv) {
    kill_all(env);
    let _ = std::fs::remove_dir_all(env.root().join("run/gpucl"));
    let another = |text: String| text.replace(&boot_id(), "11111111-2222-3333-4444-555555555555");
    edit_state(env, another);
    for (path, text) in contents(&env.home().join(".local/share/gpucl/hosts")) {
        if path.parent().unwrap().ends_with("processes") {
            let text = String::from_utf8(text).unwrap();
            for group in text.lines().filter_map(|line| line.strip_prefix("group ")) {
                until("its control group was empty", 10, || std::fs::remove_dir(group).is_ok().then_some(()));
            }
            std::fs::write(&path, another(text)).unwrap();
        }
    }
}

/// A cluster of two workers, by this spec, after a restart of the machine. Leaves it as it was, of other processes.
pub(super) fn the_machine_is_restarted(env: &TestEnv, spec: &str) {
    restart_machine(env);
    let _ = env
        .run(&["status"])
        .exits(0)
        .prints("t: stopped on local\n")
        .prints("this machine has been restarted: nothing of the cluster runs; `gpucl up` rebuilds it\n");
    assert_eq!(status(env)["restarted"], true);
    let _ = env.run(&["verify"]).exits(3).says("not asked, as these do not run: head worker0 worker1");
    let _ = env
        .run(&["up", spec])
        .exits(0)
        .says("this machine was restarted since the cluster was started: none of its processes survived\n")
        .prints("ready: 11 checks passed, 1 operation (");
    assert_eq!((status(env)["restarted"].as_bool(), pids(env).len()), (Some(false), 3));
}

#[test]
fn down_after_a_restart_of_the_machine() {
    let env = TestEnv::with_shared_ray();
    let _ = env.write("cluster.yaml", SLEEPERS);
    node_script(&env, SLEEPER);
    let _ = env.run(&["up"]).exits(7);
    restart_machine(&env);
    let outcome = down_leaves_nothing(&env);
    let _ = outcome
        .says("this machine was restarted since the cluster was started: none of its processes survived\n")
        .says("removed: host host0 (");
}

/// What the host remembers of its nodes names a process of a stranger, by its number alone and by all that can be known
/// of it.
#[test]
fn a_recorded_pid_that_a_foreign_process_has_now() {
    let env = TestEnv::with_shared_ray();
    let _ = env.write("cluster.yaml", SLEEPERS);
    node_script(&env, SLEEPER);
    let mut stranger = Command::new("sleep").arg("900").spawn().unwrap();
    let (pid, start) = (stranger.id(), Identity::of(stranger.id()).unwrap().start);
    for ticks in [1, start] {
        for verb in ["stop", "down"] {
            let _ = env.run(&["up"]).exits(7);
            assert_eq!(pids(&env).len(), 2);
            let host = std::fs::read_dir(env.home().join(".local/share/gpucl/hosts")).unwrap().next().unwrap().unwrap();
            kill(supervisor(&env).unwrap());
            for name in ["supervisor", "head", "worker0"] {
                let file = host.path().join("run").join(name);
                let text = std::fs::read_to_string(&file).unwrap();
                let mut words: Vec<&str> = text.split(' ').collect();
                let (pid, ticks) = (pid.to_string(), ticks.to_string());
                (words[1], words[2]) = (&pid, &ticks);
                std::fs::write(&file, words.join(" ")).unwrap();
            }
            let _ = env.run(&[verb]).exits(0);
            assert!(runs(pid), "`gpucl {verb}` ended a stranger's process");
            assert_eq!(processes(&env), [], "`gpucl {verb}` left something running");
        }
    }
    nothing_left(&env);
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}
