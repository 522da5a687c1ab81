//! Messages appear once, and are correct.

use crate::chameleon::site::Site;
use crate::support::TestEnv;

#[test]
fn doctor_says_what_is_needed_here_and_ends_its_last_line() {
    let env = TestEnv::new();
    let outcome = env.run(&["doctor"]);
    assert!(outcome.stdout.contains("not needed here, `up` installs it on SSH hosts"), "{}", outcome.stdout);
    assert!(!outcome.stdout.contains("not there yet") && outcome.stdout.ends_with('\n'), "{}", outcome.stdout);
}

#[test]
fn a_host_before_the_dashes_is_refused_with_the_right_flag() {
    let env = TestEnv::new();
    let _ = env
        .run(&["exec", "worker-0", "--", "nvidia-smi", "-L"])
        .exits(2)
        .says("name a host with --host")
        .says("hint: gpucl exec --host worker-0 -- nvidia-smi -L");
    // A program may have dashes of its own.
    let _ = env.run(&["exec", "--", "git", "log", "--", "file"]).exits(6);
}

/// On a terminal both streams are one screen.
#[test]
fn down_shows_each_result_once_on_a_terminal() {
    let site = Site::stand_in();
    let spec = site.spec("", "timeouts: { boot: 2s }\n");
    site.run(&["up", "--yes", &spec]).exits(1);
    let program = "import os, pty, sys\nsys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))\n";
    let own = site.env.command(&[]);
    let mut terminal = std::process::Command::new("python3");
    terminal
        .args(["-c", program, env!("CARGO_BIN_EXE_gpucl"), "down", "--yes"])
        .env_clear()
        .current_dir(site.env.work());
    terminal.envs(own.get_envs().filter_map(|(name, value)| Some((name, value?)))).env("TERM", "xterm");
    let output = terminal.stdin(std::process::Stdio::null()).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{shown}");
    let times = |text: &str| shown.matches(text).count();
    assert_eq!(times("asked the provider `chameleon` again"), 1, "{shown}");
    assert_eq!(times("nothing of demo is left"), 1, "{shown}");
    assert_eq!(
        times("removed: "),
        times("removed: lease") + times("removed: server") + times("removed: floating") + times("removed: key"),
        "{shown}"
    );
}
