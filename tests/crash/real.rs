//! kill -9 at a sample of the points, on a real cluster: Ray, supervisor, host program, journal and all.

use std::time::{Duration, Instant};

use crate::support::{TestEnv, tagged_processes, turn};

/// The journal records at which to kill: record, key, and the name of a note.
const UP: &[(&str, &str, &str)] = &[
    ("requested", "host0", ""),
    ("exists", "host0", ""),
    ("noted", "host0", "place"),
    ("ready", "host0", ""),
    ("noted", "host0", "ray_env"),
    ("requested", "project0", ""),
    ("noted", "project0", "pages"),
    ("exists", "project0", ""),
];
const DOWN: &[(&str, &str, &str)] =
    &[("releasing", "project0", ""), ("gone", "project0", ""), ("releasing", "host0", ""), ("gone", "host0", "")];

const SPEC: &str = "name: killed\nray: {workers: {count: 2}}\n";

/// Starts the command and kills it as soon as the record stands in a journal; false when it ended before.
fn kill_at(env: &TestEnv, arguments: &[&str], point: (&str, &str, &str)) -> bool {
    kill_when(env, arguments, &env.home().join(".local/state/gpucl/clusters/killed"), point)
}

/// The same for the cluster whose state is in this folder.
pub(crate) fn kill_when(
    env: &TestEnv,
    arguments: &[&str],
    folder: &std::path::Path,
    point: (&str, &str, &str),
) -> bool {
    // Only what comes from now on counts.
    let before = count(folder, point);
    let mut child =
        env.command(arguments).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
    let begin = Instant::now();
    loop {
        if count(folder, point) > before {
            child.kill().unwrap();
            child.wait().unwrap();
            return true;
        }
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        assert!(begin.elapsed() < Duration::from_secs(240), "{arguments:?} neither came to {point:?} nor ended");
        std::thread::sleep(Duration::from_micros(500));
    }
}

/// How often a record stands in the journals of a cluster.
pub(crate) fn count(folder: &std::path::Path, (record, key, name): (&str, &str, &str)) -> usize {
    let mut found = 0;
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with("journal-") {
            continue;
        }
        for line in std::fs::read_to_string(entry.path()).unwrap_or_default().lines() {
            let Ok(line) = serde_json::from_str::<serde_json::Value>(line) else { continue };
            found += usize::from(
                line["record"] == record && line["key"] == key && (name.is_empty() || !line["notes"][name].is_null()),
            );
        }
    }
    found
}

/// The main processes of nodes, by their tags.
fn mains(env: &TestEnv) -> usize {
    tagged_processes(env).iter().filter(|(_, command)| command.contains("/reaper.py run ")).count()
}

/// The two that `.ci/run` takes: nodes are being started, and being ended.
const FEW: &[(&str, &str, &str)] = &[("exists", "project0", ""), ("releasing", "project0", "")];

/// A testbed's, for its real Ray: at two points in `.ci/run`, at all of them by `just kill-points`.
#[test]
#[ignore = "testbed"]
fn kill_9_at_a_sample_of_points_of_a_real_cluster_leaks_nothing() {
    let all = std::env::var_os("GPUCL_POINTS").is_some();
    let taken = |points: &'static [(&'static str, &'static str, &'static str)]| {
        points.iter().filter(move |point| all || FEW.contains(point))
    };
    let _turn = turn();
    let env = TestEnv::with_shared_ray();
    let spec = env.write("cluster.yaml", SPEC).display().to_string();
    let (mut points, mut leaks) = (0, 0);
    for (number, point) in taken(UP).enumerate() {
        points += usize::from(kill_at(&env, &["up", &spec], *point));
        // Every other time the way on is `down` at once.
        if number % 2 == 0 {
            env.run(&["up", &spec]).exits(0);
            assert_eq!(mains(&env), 3, "after {point:?} and another `up` each node runs once");
            env.run(&["plan", &spec]).exits(0).prints("nothing to change");
        }
        env.run(&["down", "--yes", "-c", "killed"]);
        leaks += tagged_processes(&env).len();
        assert_eq!(tagged_processes(&env), [], "after {point:?}");
        assert!(!env.home().join(".local/share/gpucl").exists(), "after {point:?} the host's folder is gone");
    }
    for point in taken(DOWN) {
        env.run(&["up", &spec]).exits(0);
        points += usize::from(kill_at(&env, &["down", "--yes", "-c", "killed"], *point));
        env.run(&["down", "--yes", "-c", "killed"]);
        leaks += tagged_processes(&env).len();
        assert_eq!(tagged_processes(&env), [], "after {point:?}");
        assert!(!env.home().join(".local/share/gpucl").exists(), "after {point:?} the host's folder is gone");
        assert!(!env.home().join(".local/state/gpucl/clusters/killed").exists(), "after {point:?} the state is gone");
    }
    println!("kill -9 at {points} points of a real cluster; leaks: {leaks}");
    assert!(points >= if all { 12 } else { 2 }, "only {points} of the points were met");
}
