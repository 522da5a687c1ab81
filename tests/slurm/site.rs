//! Troubles of the site, of the user's account and of others on the nodes: said, survived, and nothing is left.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use serde_json::json;

use super::testbed::{self, left, login, nothing_is_left, on, testbed, turn, with_ready_ray, with_ready_ray_and};
use crate::support::{After, TestEnv};

/// The login machine asks for a second factor, which gpucl cannot answer: the user's own open connection carries all.
#[test]
#[ignore = "by hand: just slurm"]
fn a_connection_that_the_user_keeps_open_is_used_and_never_closed() {
    let _turn = turn();
    let env = TestEnv::new();
    let ssh = env.root().join("ssh");
    std::fs::create_dir(&ssh).unwrap();
    std::fs::set_permissions(&ssh, std::fs::Permissions::from_mode(0o700)).unwrap();
    let (socket, known) = (env.root().join("cm"), ssh.join("known_hosts"));
    let (address, key) = (testbed()["login"].as_str().unwrap(), testbed()["host_key"].as_str().unwrap());
    std::fs::write(&known, format!("{address} {key}\n")).unwrap();
    let config = format!(
        "Host cluster\n  HostName {address}\n  User ada\n  UserKnownHostsFile {}\n  ControlPath {}\n",
        known.display(),
        socket.display()
    );
    std::fs::write(ssh.join("config"), config).unwrap();
    // OpenSSH reads the folder of the user whom the system knows, not $HOME.
    let gpucl = |arguments: &[&str]| {
        let inner = env.command(arguments);
        let mut command = Command::new("unshare");
        let bind = "home=$(getent passwd \"$(id -u)\" | cut -d: -f6); mkdir -p -m 700 \"$home/.ssh\"; \
                    mount --bind \"$0\" \"$home/.ssh\" && exec \"$@\"";
        command.args(["-m", "--", "sh", "-c", bind]).arg(&ssh).arg(inner.get_program()).args(inner.get_args());
        command.env_clear().current_dir(env.work()).stdin(std::process::Stdio::null());
        command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let settings = json!({
        "name": "slurm", "host": "cluster", "hours": 0.5, "cpus": 2, "memory": "6GiB",
        "environment": testbed::ready_environments("ada"),
    });
    let spec = testbed::spec(&env, "factor", &settings, 1, &json!({})).display().to_string();

    let (code, _, said) = gpucl(&["up", &spec]);
    assert!(code == Some(1) && said.contains("keep a connection open yourself"), "{said}");
    assert_eq!(left(), Vec::<String>::new());

    let control = |verb: &[&str]| {
        let mut command = Command::new("ssh");
        command.args(["-F"]).arg(ssh.join("config")).args(verb).arg("cluster").output().unwrap().status.success()
    };
    assert!(control(&["-M", "-N", "-f", "-o", "BatchMode=yes", "-i", testbed()["identity"].as_str().unwrap()]));
    let _close = After(|| {
        control(&["-O", "exit"]);
    });
    let (code, stdout, said) = gpucl(&["up", &spec]);
    assert!(code == Some(0) && stdout.contains("ready:"), "{stdout}{said}");
    let (code, stdout, said) = gpucl(&["exec", "-c", "factor", "--", "hostname"]);
    assert!(code == Some(0) && stdout.contains('n'), "{stdout}{said}");
    let (code, stdout, said) = gpucl(&["down", "--yes", "-c", "factor"]);
    assert!(code == Some(0) && stdout.contains("nothing of factor is left"), "{stdout}{said}");
    assert!(control(&["-O", "check"]), "the user's connection is still open");
    nothing_is_left();
}

/// Fills a folder of a machine; the returned guard frees it.
fn full(machine: &'static str, folder: &'static str) -> After<impl FnMut()> {
    on(
        machine,
        &format!(
            "mkdir -p /mnt/full && mount -t tmpfs -o size=2m,mode=$(stat -c %a {folder}),uid=$(stat -c %u {folder}) full /mnt/full \
             && if [ -d {folder}/.ssh ]; then cp -a {folder}/.ssh /mnt/full/; fi && mount --move /mnt/full {folder} \
             && head -c 4m /dev/zero >{folder}/data 2>/dev/null; [ -s {folder}/data ]"
        ),
    );
    After(move || {
        on(machine, &format!("umount -l {folder}"));
    })
}

/// Nothing is submitted when the files of the job have no room.
#[test]
#[ignore = "by hand: just slurm"]
fn a_full_home_folder_is_said_before_a_job_is_submitted() {
    let _turn = turn();
    let env = TestEnv::new();
    let spec = with_ready_ray(&env, "full", 1, &json!({}));
    let full = full("login", "/home/ada");
    let up = env.run(&["up", &spec]).exits(1);
    println!("{}", up.stderr);
    assert!(up.stderr.contains("No space left on device") && up.stderr.contains("make room"), "{}", up.stderr);
    assert_eq!(login("ada", "squeue -h -u ada -o %j"), "");
    drop(full);
    env.run(&["down", "--yes", "-c", "full"]);
    assert_eq!(left(), Vec::<String>::new());
}

/// The node's own disk has no room for the Python environment.
#[test]
#[ignore = "by hand: just slurm"]
fn a_full_disk_of_a_node_is_said() {
    let _turn = turn();
    let env = TestEnv::new();
    let mut more = testbed::python();
    more.as_object_mut()
        .unwrap()
        .extend(json!({ "cpus": 2, "memory": "6GiB", "sbatch": ["--nodelist=n3"] }).as_object().unwrap().clone());
    let spec = testbed::spec(&env, "disk", &testbed::settings("ada", &more), 1, &json!({})).display().to_string();
    let full = (full("n3", "/localscratch"), full("n3", "/tmp"));
    let up = env.run(&["up", &spec]).exits(1);
    println!("{}", up.stderr);
    assert!(up.stderr.contains("No space left") || up.stderr.contains("has no room"), "{}", up.stderr);
    env.run(&["down", "--yes", "-c", "disk"]).exits(0).prints("nothing of disk is left");
    drop(full);
    nothing_is_left();
}

/// A site whose nodes have no internet, and a spec that takes packages from there.
#[test]
#[ignore = "by hand: just slurm"]
fn nodes_without_internet_name_the_sites_wheels() {
    let _turn = turn();
    let env = TestEnv::new();
    // The testbed's pip would find the site's wheels by itself.
    on("n1", "mv /etc/pip.conf /etc/pip.conf.away");
    let _back = After(|| {
        on("n1", "mv /etc/pip.conf.away /etc/pip.conf");
    });
    let more = json!({ "cpus": 2, "memory": "6GiB", "modules": ["python/3.12"], "sbatch": ["--nodelist=n1"] });
    let spec = testbed::spec(&env, "offline", &testbed::settings("ada", &more), 1, &json!({})).display().to_string();
    let up = env.run(&["up", &spec]).exits(1);
    println!("{}", up.stderr);
    assert!(up.stderr.contains("packages: site"), "{}", up.stderr);
    env.run(&["down", "--yes", "-c", "offline"]).exits(0).prints("nothing of offline is left");
    nothing_is_left();
}

/// A firewall between two nodes lets Slurm through and Ray not: the worker that does not join is named.
#[test]
#[ignore = "by hand: just slurm"]
fn a_worker_that_never_joins_is_named() {
    let _turn = turn();
    let env = TestEnv::new();
    let limits = json!({ "timeouts": { "start": "40s", "ready": "40s" } });
    let spec = with_ready_ray_and(&env, "apart", 2, &json!({ "sbatch": ["--exclude=n3"] }), &limits);
    let wall = |program: &str| {
        let network = std::env::var("GPUCL_SLURM_NETWORK").unwrap_or_else(|_| "gpucl-slurm".to_owned());
        let script = format!(
            "pid=$(docker inspect -f '{{{{.State.Pid}}}}' {network}-n2) && nsenter -t \"$pid\" -n sh -c '{program}'"
        );
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    // Ray's blocks of ports; Slurm's own are others.
    let head = testbed()["nodes"]["n1"].as_str().unwrap();
    wall(&format!(
        "nft \"add table inet apart; add chain inet apart out {{ type filter hook output priority 0; }}; \
         add rule inet apart out ip daddr {head} tcp dport 20000-32700 drop\""
    ));
    let open = After(|| wall("nft delete table inet apart"));
    let up = env.run(&["up", &spec]).exits(7);
    println!("{}", up.stderr);
    assert!(up.stderr.contains("no answer in time from worker-1"), "{}", up.stderr);
    drop(open);
    env.run(&["up", &spec]).exits(0).prints("ready:");
    env.run(&["down", "--yes", "-c", "apart"]).exits(0).prints("nothing of apart is left");
    nothing_is_left();
}

/// An administrator drains the head's node: the job goes on until it ends, and so does the cluster.
#[test]
#[ignore = "by hand: just slurm"]
fn a_drained_node_keeps_its_cluster() {
    let _turn = turn();
    let env = TestEnv::new();
    let spec = with_ready_ray(&env, "drained", 1, &json!({ "sbatch": ["--nodelist=n1"] }));
    env.run(&["up", &spec]).exits(0).prints("ready:");
    on("ctl", "scontrol update nodename=n1 state=drain reason=maintenance");
    let _resume = After(|| {
        on("ctl", "scontrol update nodename=n1 state=resume");
    });
    env.run(&["verify", "-c", "drained"]).exits(0);
    env.run(&["up", &spec]).exits(0).prints("nothing was changed");
    env.run(&["down", "--yes", "-c", "drained"]).exits(0).prints("nothing of drained is left");
    // The next job cannot have it.
    let spec = with_ready_ray(&env, "drained", 1, &json!({ "sbatch": ["--nodelist=n1"], "queue": "8s" }));
    env.run(&["plan", &spec]).exits(0).prints("Slurm cannot say when the job would start: not in service now: n1");
    env.run(&["up", &spec]).exits(7).says("a node that it needs is down or reserved (ReqNodeNotAvail");
    env.run(&["down", "--yes", "-c", "drained"]).exits(0).prints("nothing of drained is left");
    nothing_is_left();
}

/// Somebody else's server listens where our Ray would: it gets none of our traffic, and we take other ports.
#[test]
#[ignore = "by hand: just slurm"]
fn a_strangers_server_on_our_ports_is_avoided() {
    let _turn = turn();
    let env = TestEnv::new();
    let spec = with_ready_ray(&env, "ports", 1, &json!({ "sbatch": ["--nodelist=n1"] }));
    let address = || {
        env.run(&["up", &spec]).exits(0).prints("ready:");
        let job = env.run(&["job", "submit", "-c", "ports", "--", "sh", "-c", "echo at $RAY_ADDRESS"]).exits(0);
        env.run(&["down", "--yes", "-c", "ports"]).exits(0).prints("nothing of ports is left");
        let port = job.stdout.lines().find_map(|line| line.strip_prefix("at 127.0.0.1:")?.parse::<u16>().ok());
        port.unwrap_or_else(|| panic!("{}", job.stdout))
    };
    let port = address();
    let server = format!(
        "import socket, time; s = socket.create_server(('', {port})); s.settimeout(200)\ntry: s.accept(); print('came', flush=True)\nexcept OSError: pass"
    );
    on("n1", &format!("cat >/opt/stranger.py <<'END'\n{server}\nEND"));
    on(
        "n1",
        "setsid su bob -s /bin/sh -c 'exec python3 /opt/stranger.py' >/opt/stranger.log 2>&1 </dev/null & sleep 1",
    );
    let end = After(|| {
        on("n1", "pkill -u bob; rm -f /opt/stranger.*");
    });
    assert_ne!(address(), port);
    let came = on("n1", "cat /opt/stranger.log");
    assert!(!came.contains("Error"), "{came}");
    drop(end);
    nothing_is_left();
}

/// `scancel` is refused: nothing is said to be gone, and the next `down` ends it.
#[test]
#[ignore = "by hand: just slurm"]
fn a_refused_scancel_is_quoted_and_the_job_is_named() {
    let _turn = turn();
    let env = TestEnv::new();
    let spec = with_ready_ray(&env, "kept", 1, &json!({}));
    env.run(&["up", &spec]).exits(0).prints("ready:");
    let refuse =
        "#!/bin/sh\necho \"scancel: error: Kill job error on job id $1: Access/permission denied\" >&2\nexit 1\n";
    on("login", &format!("printf '%s' '{refuse}' >/usr/local/bin/scancel && chmod 755 /usr/local/bin/scancel"));
    let allow = After(|| {
        on("login", "rm -f /usr/local/bin/scancel");
    });
    let down = env.run(&["down", "--yes", "-c", "kept"]);
    println!("{:?} {}", down.code, down.stderr);
    assert!(![Some(0)].contains(&down.code), "{}{}", down.stdout, down.stderr);
    assert!(down.stderr.contains("Access/permission denied") && !down.stdout.contains("nothing of"), "{}", down.stderr);
    drop(allow);
    env.run(&["down", "--yes", "-c", "kept"]).exits(0).prints("nothing of kept is left");
    nothing_is_left();
}
