//! Costs are shown before, during and after, and high ones need a confirmation.

use std::io::Write as _;
use std::process::Stdio;

use super::{folder, mode, pid, spec, up};
use crate::chameleon::site::Site;
use crate::support::TestEnv;

#[test]
fn costs_are_shown_before_during_and_after() {
    let site = Site::stand_in();
    let file = spec(&site, "");
    let _ = site.run(&["plan", &file]).exits(0).prints("costs 1 SU an hour (1 x lease on c03-05)");
    let plan = site.run(&["plan", &file, "--output", "json"]).exits(0).json();
    assert_eq!(plan[0]["price"]["per_hour"][0]["unit"], "SU");
    assert_eq!(plan[0]["price"]["per_hour"][0]["amount"], 1.0);
    // An allocation's units are not asked about by default.
    let _ = site.run(&["up", &file]).exits(1).says("this costs 1 SU an hour (1 x lease on c03-05)");
    let _ = site.run(&["status", "--offline"]).exits(0).prints("costs 1 SU an hour, about 0.01 SU so far");
    let _ = site.run(&["list"]).exits(0).prints("COSTS AN HOUR  SO FAR").prints("1 SU           0.01 SU");
    let listed = site.run(&["list", "--output", "json"]).exits(0).json();
    assert_eq!(listed[0]["cost"]["per_hour"][0]["amount"], 1.0);
    let so_far = listed[0]["cost"]["so_far"][0]["amount"].as_f64().unwrap();
    assert!(so_far > 0.0 && so_far < 0.1, "{so_far}");
    // Running resources are not paid for twice: existing ones are not shown as new.
    let again = site.run(&["up", &file]).exits(1);
    assert!(!again.stderr.contains("this costs"), "{}", again.stderr);
    let _ = site.run(&["down", "--yes"]).exits(0).prints("it cost about 0.01 SU in all");
}

#[test]
fn recreated_resources_continue_the_costs() {
    let site = Site::stand_in();
    up(&site, "");
    let snapshot = folder(&site.env).join("snapshot.json");
    let mut state: serde_json::Value = serde_json::from_slice(&std::fs::read(&snapshot).unwrap()).unwrap();
    // The lease is an hour old, and somebody deletes it.
    let hour = jiff::Timestamp::now() - std::time::Duration::from_secs(3600);
    state["state"]["items"]["lease0"]["exists_since"] = hour.to_string().into();
    std::fs::write(&snapshot, state.to_string()).unwrap();
    let lease = site.ours().leases[0].id.clone();
    let path = format!("/reservation/v1/leases/{lease}");
    site.call(gpucl::sandbox::chameleon::User::Alice, "DELETE", &path, &serde_json::Value::Null);
    up(&site, "");
    let _ = site.run(&["status", "--offline"]).exits(0).prints("costs 1 SU an hour, about 1.0");
    let _ = site.run(&["down", "--yes"]).exits(0).prints("it cost about 1.0");
}

#[test]
fn above_a_limit_it_asks_and_refuses_without_a_terminal() {
    let site = Site::stand_in();
    let file = spec(&site, "ask_above: 0.5 SU");
    let refused = site.run(&["up", &file]).exits(2);
    let _ = refused
        .says("it costs 1 SU an hour (1 x lease on c03-05)")
        .says("more than 0.50 SU an hour needs confirmation")
        .says("hint: gpucl up cluster.yaml --yes");
    assert_eq!(site.ours().counts(), [0; 4]);
    assert!(!folder(&site.env).exists(), "something is known of what was refused");
    let _ = site.run(&["up", &file, "--output", "json"]).exits(2);
    // On a terminal it asks.
    assert!(on_a_terminal(&site.env, "n\n", &["up", &file]).contains("bring it up? [y/N]"));
    assert_eq!(site.ours().counts(), [0; 4]);
    let screen = on_a_terminal(&site.env, "y\n", &["up", &file]);
    assert!(screen.contains("failed to connect to host-0"), "{screen}");
    assert_eq!(site.ours().counts(), [1; 4]);
    site.down();
    let _ = site.run(&["up", "--yes", &file]).exits(1).says("failed to connect to host-0");
    site.down();
}

#[test]
fn a_spec_lowers_the_limit_of_its_reader_and_never_raises_it() {
    let site = crate::lambda::site::Site::prompt();
    let file = crate::lambda::site::spec_into(&site.env, 1, "type: gpu_8x_a100", "");
    let path = site.env.work().join(&file);
    let spec = std::fs::read_to_string(&path).unwrap();
    let up = |more: &str, arguments: &[&str]| {
        std::fs::write(&path, format!("{spec}{more}")).unwrap();
        site.run(&[&["up", file.as_str()], arguments].concat())
    };
    for raised in ["", "ask_above: 1000000 USD\n", "ask_above: 40\n", "ask_above: 1000 SU\n"] {
        let _ = up(raised, &[]).exits(2).says("more than 5.00 USD an hour needs confirmation").says("--ask-above");
    }
    let _ = up("ask_above: 2 USD\n", &["--ask-above", "1000"]).exits(2).says("more than 2.00 USD an hour");
    assert_eq!(site.counts(), [0; 4], "nothing was launched");
    let up = up("ask_above: 1000000 USD\n", &["--ask-above", "1000"]);
    assert!(!up.stderr.contains("needs confirmation"), "{}", up.stderr);
    site.down();
}

#[test]
fn a_copy_of_credentials_is_made_by_consent_and_goes_with_the_cluster() {
    let site = Site::stand_in();
    let file = spec(&site, "deadline: 1h");
    let _ = site
        .run(&["up", &file])
        .exits(2)
        .says("gpucl keeps a copy of OS_APPLICATION_CREDENTIAL_ID, OS_APPLICATION_CREDENTIAL_SECRET")
        .says("hint: gpucl up cluster.yaml --yes")
        .says("hint: gpucl login chameleon");
    assert_eq!(site.ours().counts(), [0; 4]);
    assert!(!folder(&site.env).exists());
    let no = on_a_terminal(&site.env, "\n", &["up", &file]);
    assert!(no.contains("agreed? [y/N]") && no.contains("not confirmed"), "{no}");
    let yes = on_a_terminal(&site.env, "y\n", &["up", &file]);
    assert!(yes.contains("not while this machine is off or asleep, and at once when it wakes"), "{yes}");
    let copy = folder(&site.env).join("secrets/environment.json");
    let text = std::fs::read_to_string(&copy).unwrap();
    assert!(text.contains("OS_APPLICATION_CREDENTIAL_SECRET"), "the copy holds no credential");
    assert_eq!((mode(&copy), mode(copy.parent().unwrap())), (0o600, 0o700));
    let secret = serde_json::from_str::<serde_json::Value>(&text).unwrap()["OS_APPLICATION_CREDENTIAL_SECRET"].clone();
    nowhere_else(&site.env, secret.as_str().unwrap(), &copy);
    // Agreed to once, it is not asked again.
    let _ = site.run(&["up", &file]).exits(1).says("failed to connect to host-0");
    assert!(pid(&site.env).is_some());
    site.down();
    assert!(!copy.exists() && pid(&site.env).is_none());
}

/// No other file of this home, and no command line of the agent, holds the secret.
fn nowhere_else(env: &TestEnv, secret: &str, but: &std::path::Path) {
    let mut left = vec![env.home(), env.root().join("run")];
    let mut looked = 0;
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path != but && path.is_file() {
            looked += 1;
            let text = std::fs::read(&path).unwrap();
            assert!(!String::from_utf8_lossy(&text).contains(secret), "{} holds it", path.display());
        }
    }
    assert!(looked > 3, "{looked}");
    let pid = pid(env).unwrap().as_raw_nonzero();
    for file in ["cmdline", "environ"] {
        let text = std::fs::read(format!("/proc/{pid}/{file}")).unwrap();
        assert!(!String::from_utf8_lossy(&text).contains(secret), "its {file} holds it");
    }
}

#[test]
fn a_limit_that_cannot_be_enforced_is_refused() {
    let site = Site::stand_in();
    let file = spec(&site, "max_cost: 40 USD");
    for verb in ["plan", "up"] {
        let _ =
            site.run(&[verb, "--yes", &file]).exits(2).says("max_cost: is in USD, but the hosts are priced in 1 SU");
    }
    assert_eq!(site.ours().counts(), [0; 4]);
    let env = TestEnv::new();
    env.write("cluster.yaml", "name: x\nmax_cost: 40\n");
    for verb in ["plan", "up"] {
        let _ = env.run(&[verb]).exits(2).says("the provider `local` reports no price").says("hint: `deadline: 3h`");
    }
    assert!(!env.home().join(".local/state/gpucl/clusters").exists(), "something was made");
}

#[test]
fn wrong_limits_are_reported_with_their_place() {
    let env = TestEnv::new();
    env.write("cluster.yaml", "name: x\ndeadline: soon\nmax_cost: 40 EUR\nask_above: 0\n");
    let _ = env
        .run(&["plan"])
        .exits(2)
        .says("cluster.yaml:2:11: deadline: `soon` is not a deadline")
        .says("cluster.yaml:3:11: max_cost: `40 EUR` is not an amount")
        .says("cluster.yaml:4:12: ask_above: `0` is not an amount");
    env.write("cluster.yaml", "name: x\ndeadline: 18:00\nask_above: 2.5\n");
    let _ = env.run(&["plan"]).exits(0);
}

/// Runs the program on a terminal with typed input; returns the screen.
fn on_a_terminal(env: &TestEnv, typed: &str, arguments: &[&str]) -> String {
    let program = env.command(arguments);
    let mut python = std::process::Command::new("python3");
    python.env_clear().envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    python.current_dir(env.work()).args(["-c", "import pty, sys; pty.spawn(sys.argv[1:])"]);
    python.arg(program.get_program()).args(arguments);
    let mut child = python.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The end of what is typed would be the end of the terminal: it stays open until the program has ended.
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(typed.as_bytes()).unwrap();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut child.stdout.take().unwrap(), &mut text).unwrap();
    child.wait().unwrap();
    drop(stdin);
    text
}
