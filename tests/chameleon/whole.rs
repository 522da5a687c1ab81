//! The whole way on the real services, to hosts that boot and run Docker: a lease, a server, an address, Ray, and
//! nothing left.

use std::cell::OnceCell;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gpucl::sandbox::chameleon::User;

use super::site::{Held, Site};
use crate::crash::real::count;
use crate::hosts::{data_in_and_results_out, example, gpucl, openstack_script, with_data};
use crate::lambda::host_key::{in_use, kill_when, only_its_own_key_is_known, plain, record, state};
use crate::support::{TestEnv, interrupt, turn, until, until_or};

/// Hosts of this kind from now on: with what is downloaded already, or without.
fn boots(image: &str) {
    openstack_script("up", &["--host-image", image]);
}

/// Ready, a job runs, and it goes: the services are asked, not the state.
fn runs_and_goes(site: &Site, env: &TestEnv, leases_left: usize) {
    let code = "import ray; ray.init(); f = ray.remote(lambda x: x * x); print('sum', sum(ray.get([f.remote(i) for i in range(4)])))";
    gpucl(env, &["job", "submit", "--", "python", "-c", code]).exits(0).prints("sum 14");
    let begin = Instant::now();
    let down = gpucl(env, &["down", "--yes"]).exits(0).prints("is left");
    println!("down: {:.0} s\n{}", begin.elapsed().as_secs_f64(), down.stdout);
    assert_eq!(site.of_owner(env).counts(), [leases_left, 0, 0, 0], "{:?}", site.of_owner(env));
}

/// Writes an output, and exits with the code it is given, or waits.
const WRITES: &str = "mkdir -p $GPUCL_DATA/out && echo 42 >$GPUCL_DATA/out/answer.txt && echo written && if [ $0 = wait ]; then sleep 600; fi; exit $0";

/// `gpucl run` on a cluster that exists: a job that succeeds, one that fails, and one that Ctrl-C ends, after which
/// the cluster is gone. Each brings its output.
fn runs_jobs_and_goes(site: &Site, env: &TestEnv, leases_left: usize) {
    let answer = env.work().join("outputs/demo/answer.txt");
    let fetched = || {
        let text = std::fs::read_to_string(&answer).unwrap_or_default();
        std::fs::remove_file(&answer).unwrap();
        text.trim() == "42"
    };
    let run = |keep: &'static str, with: &'static str| {
        ["run", "--keep", keep, "--fetch", "out/answer.txt", "--", "sh", "-c", WRITES, with]
    };
    gpucl(env, &run("all", "0")).exits(0).prints("written");
    assert!(fetched());
    gpucl(env, &run("all", "3")).exits(3).prints("written");
    assert!(fetched());

    let arguments = with_data(&run("nothing", "wait"));
    let mut command = env.command(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "written"), "the job ended without a word");
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    println!("run, interrupted: {}", said.lines().last().unwrap_or_default());
    assert!(fetched());
    assert_eq!(site.of_owner(env).counts(), [leases_left, 0, 0, 0], "{:?}", site.of_owner(env));
}

/// An `up` that has come to the wait for its lease; where it does not, what it said is shown.
fn up_that_waits(env: &TestEnv) -> Child {
    let log = env.root().join("up.log");
    let arguments = with_data(&["up"]);
    let mut up = env.command(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let up = up.stdout(Stdio::null()).stderr(File::create(&log).unwrap()).spawn().unwrap();
    let status = || env.run(&["status", "--offline"]);
    until_or(
        "the wait",
        60,
        || status().stdout.contains("it waits for the lease").then_some(()),
        || format!("{}\n{}{}", std::fs::read_to_string(&log).unwrap(), status().stdout, status().stderr),
    );
    up
}

/// `up` waits for a lease that begins in a minute or two, and is killed; the cluster comes up in the background all the
/// same.
#[test]
#[ignore = "testbed"]
fn a_scheduled_cluster_comes_up_in_the_background_and_runs() {
    let _turn = turn();
    let site = Site::real();
    let env = site.user(User::Alice);
    example(&env, "chameleon-nvidia");
    // The unit of the service is the minute, and `gpucl lease` itself waits for what begins within one: 70 s or more
    // from now, once it is cut.
    let at = (jiff::Timestamp::now() + Duration::from_secs(130)).strftime("%H:%M").to_string();
    env.run(&["lease", "--node", "liqid01", "--hours", "1", "--start", &at, "--yes"]).exits(0);

    let begin = Instant::now();
    let mut up = up_that_waits(&env);
    // Our own child, killed as by a lost session.
    up.kill().unwrap();
    up.wait().unwrap();
    let status = env.run(&["status", "--offline"]).exits(0).prints("which begins at");
    println!("killed after {:.0} s; {}", begin.elapsed().as_secs_f64(), status.stdout.trim());
    // In time: nothing boots before the lease begins.
    boots("ready");

    until("the cluster", 900, || env.run(&["status", "--offline"]).stdout.contains(": ready since").then_some(()));
    println!("ready by itself after {:.0} s", begin.elapsed().as_secs_f64());
    // The background process does not exit at the same moment: until then it holds the cluster.
    let up = until("the end of who brought it up", 30, || Some(gpucl(&env, &["up"])).filter(|up| up.code != Some(4)));
    let up = up.exits(0).prints("ready:").says("Stand-in GPU");
    println!("{}", up.stdout);
    only_its_own_key_is_known(&env, &state(&env));
    env.run(&["status"]).exits(0).says("its hosts will be taken away at");
    data_in_and_results_out(&env, None);
    runs_jobs_and_goes(&site, &env, 1);
    let lease = env.run(&["lease", "list", "--output", "json"]).exits(0).stdout;
    let lease: serde_json::Value = serde_json::from_str(lease.lines().next().unwrap()).unwrap();
    env.run(&["lease", "delete", lease["id"].as_str().unwrap(), "--yes"]).exits(0);
    assert_eq!(site.of_owner(&env), Held::default());
}

/// `down` ends the wait, and leaves what the cluster had adopted alone.
#[test]
#[ignore = "testbed"]
fn down_ends_the_wait_and_leaves_the_lease() {
    let site = Site::real();
    let env = site.user(User::Alice);
    example(&env, "chameleon-nvidia");
    let at = (jiff::Timestamp::now() + Duration::from_secs(3600)).strftime("%H:%M").to_string();
    env.run(&["lease", "--node", "liqid01", "--hours", "1", "--start", &at, "--yes"]).exits(0);
    let mut up = up_that_waits(&env);
    gpucl(&env, &["down", "--yes"]).exits(0).prints("kept: the lease");
    assert_eq!(up.wait().unwrap().code(), Some(130), "the waiting `up` ends");
    assert_eq!(site.of_owner(&env).counts(), [1, 0, 0, 0]);
    env.run(&["status", "--offline"]).exits(6);
    let lease = site.of_owner(&env).leases[0].id.clone();
    env.run(&["lease", "delete", &lease, "--yes"]).exits(0);
    assert_eq!(site.of_owner(&env), Held::default());
}

pub(super) mod every {
    use super::*;

    #[test]
    #[ignore = "by hand: just testbed-all"]
    fn a_fresh_nvidia_host_from_nothing() {
        whole("chameleon-nvidia", "fresh");
    }

    #[test]
    #[ignore = "by hand: just testbed-all"]
    fn an_amd_host_from_nothing() {
        whole("chameleon-amd", "fresh");
    }

    /// The first process of the host behind the only server, once that has one.
    fn process_of_host(site: &Site, env: &TestEnv) -> Option<String> {
        let id = site.of_owner(env).servers.first()?.id.clone();
        let mut inspect = Command::new("docker");
        inspect.args(["inspect", "-f", "{{.State.Pid}}", &format!("gpucl-testbed-os-{id}")]);
        let output = inspect.output().unwrap();
        let process = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        (output.status.success() && process != "0").then_some(process)
    }

    /// Each `up` gets in, and goes on; so does one after the host was restarted.
    #[test]
    #[ignore = "by hand: just testbed-all"]
    fn up_killed_at_each_step_of_the_replacement_of_a_host_key_gets_in_again() {
        let _turn = turn();
        boots("ready");
        let site = Site::real();
        let env = site.user(User::Alice);
        example(&env, "chameleon-nvidia");
        let arguments = with_data(&["up"]);
        let up: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let server = || site.of_owner(&env).servers[0].id.clone();
        // A file of the host, as the kernel shows it here: fast enough to see a step before the next one.
        let host = OnceCell::new();
        let of_host = |file: &str| {
            let process = match host.get() {
                Some(process) => Some(process),
                None => process_of_host(&site, &env).map(|process| host.get_or_init(|| process)),
            };
            let file = format!("/proc/{}/root/etc/ssh/ssh_host_ed25519_key{file}", process?);
            Some(plain(&std::fs::read_to_string(file).unwrap_or_default())).filter(|key| !key.is_empty())
        };
        kill_when(&env, &up, "the host has made a key", || of_host(".gpucl.pub").is_some());
        assert!(record(&env).is_empty() && state(&env).join("secrets/ssh_host0.pub").exists());
        kill_when(&env, &up, "both keys are known", || !record(&env).is_empty());
        let given = plain(&std::fs::read_to_string(state(&env).join("secrets/ssh_host0.pub")).unwrap());
        assert_eq!(of_host(".pub"), Some(given.clone()));
        kill_when(&env, &up, "the host has taken its key", || of_host(".gpucl.pub").is_none());
        assert_eq!(in_use(&env), 0);
        kill_when(&env, &up, "its key is known to be in use", || in_use(&env) == 1);
        kill_when(&env, &up, "the host is prepared", || count(&state(&env), ("noted", "host0", "facts")) > 0);
        only_its_own_key_is_known(&env, &state(&env));
        gpucl(&env, &["up"]).exits(0).prints("ready:");
        // cloud-init runs again, with the same user data.
        openstack_script("exec", &[&server(), "sh", "-c", "touch /run/before; systemctl reboot --no-block"]);
        let exec = concat!(env!("CARGO_MANIFEST_DIR"), "/testbed/openstack/exec");
        until("the host is back", 120, || {
            let mut look = Command::new(exec);
            look.args([&server(), "sh", "-c", "[ ! -e /run/before ] && systemctl is-active ssh"]);
            look.output().unwrap().status.success().then_some(())
        });
        gpucl(&env, &["up"]).exits(0).prints("ready:");
        only_its_own_key_is_known(&env, &state(&env));
        runs_and_goes(&site, &env, 0);
    }

    fn whole(name: &str, image: &str) {
        let _turn = turn();
        boots(image);
        let site = Site::real();
        let env = site.user(User::Alice);
        example(&env, name);
        let begin = Instant::now();
        let up = gpucl(&env, &["up"]).exits(0).prints("ready:").says("Stand-in GPU");
        println!("{name}: {:.0} s\n{}", begin.elapsed().as_secs_f64(), up.stdout);
        runs_and_goes(&site, &env, 0);
    }

    /// One floating IP, for the head; the worker sees nobody but the head.
    #[test]
    #[ignore = "by hand: just testbed-all"]
    fn two_hosts_with_one_address() {
        let _turn = turn();
        boots("fresh");
        let site = Site::real();
        let env = site.user(User::Alice);
        example(&env, "chameleon-two-hosts");
        let begin = Instant::now();
        let up = gpucl(&env, &["up"]).exits(0).prints("ready:").says("Stand-in GPU");
        println!("two hosts: {:.0} s\n{}", begin.elapsed().as_secs_f64(), up.stdout);
        let held = site.of_owner(&env);
        assert_eq!(held.counts(), [1, 2, 1, 1], "{held:?}");
        let worker = held.servers.iter().find(|server| server.name.ends_with("-host1")).unwrap();
        let callers = openstack_script("exec", &[&worker.id, "sh", "-c", CALLERS]);
        let head = held.servers.iter().find(|server| server.name.ends_with("-host0")).unwrap();
        let own = openstack_script("exec", &[&head.id, "hostname", "-I"]);
        println!("the worker's sshd saw: {}", callers.trim().replace('\n', " "));
        for caller in callers.lines() {
            assert!(own.split_whitespace().any(|address| address == caller), "{caller} is not the head: {own}");
        }
        assert!(!callers.trim().is_empty());
        runs_and_goes(&site, &env, 0);
    }

    /// Addresses of the clients that the SSH server admitted.
    const CALLERS: &str = "(journalctl -u ssh -u ssh.service --no-pager -o cat 2>/dev/null; cat /var/log/auth.log 2>/dev/null) \
                           | sed -n 's/.*Accepted .* from \\([0-9.]*\\) port.*/\\1/p' | sort -u";
}
