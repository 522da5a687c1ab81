//! `up` and `down` are killed at random moments, repeatedly: what is left after the next `down`?

use std::process::Stdio;
use std::time::{Duration, Instant};

use super::tools::{SPEC, processes, runs};
use crate::support::{TestEnv, turn};

/// How many rounds; `GPUCL_ROUNDS` says another number.
const ROUNDS: u64 = 8;

/// The processes that have to do with an environment and run; but for zombies, which nobody can end.
fn running(env: &TestEnv) -> Vec<(u32, String)> {
    processes(env).into_iter().filter(|(pid, _)| runs(*pid)).collect()
}

/// Starts a command and kills it after this time, if it has not ended by then; returns whether it was killed.
fn kill_after(env: &TestEnv, arguments: &[&str], time: Duration) -> bool {
    let mut child = env.command(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    while begun.elapsed() < time {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    true
}

/// A testbed's, for its minutes of real Ray: `just kill-rounds`.
#[test]
#[ignore = "by hand: just kill-rounds"]
fn after_random_kills_nothing_runs_once_down_has_ended() {
    let rounds = std::env::var("GPUCL_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS);
    let seed =
        std::env::var("GPUCL_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(u64::from(std::process::id()));
    println!("GPUCL_SEED={seed}");
    let mut state = seed | 1;
    let mut random = |below: u64| {
        // xorshift: any numbers will do, if they can be had again.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let (mut at_once, mut later) = (0, 0);
    for round in 0..rounds {
        let _turn = turn();
        // Every fourth reinstalls Ray, and is killed during the installation.
        let (env, longest) =
            if round % 4 == 3 { (TestEnv::new(), 12_000) } else { (TestEnv::with_shared_ray(), 30_000) };
        let _ = env.write("cluster.yaml", SPEC);
        let up = Duration::from_millis(random(longest));
        let down = Duration::from_millis(random(3_000));
        let killed = (kill_after(&env, &["up"], up), kill_after(&env, &["down", "-c", "t"], down));
        let last = env.run(&["down", "-c", "t"]);
        // The first `down` may have come to its end, and an `up` that was killed at once has begun nothing.
        assert!(matches!(last.code, Some(0 | 6)), "round {round}: {}{}", last.stdout, last.stderr);
        let found = running(&env);
        std::thread::sleep(Duration::from_secs(1));
        let still = running(&env);
        println!(
            "round {round}: up killed at {up:?}: {}, down at {down:?}: {}; left at once {}, after 1 s {}",
            killed.0,
            killed.1,
            found.len(),
            still.len()
        );
        for (pid, command) in &found {
            println!("    {pid} {}", command.chars().take(160).collect::<String>());
        }
        (at_once, later) = (at_once + found.len(), later + still.len());
    }
    println!("{rounds} rounds: {at_once} processes left at once, {later} after a second");
    assert_eq!((at_once, later), (0, 0));
}
