//! A cluster that nobody uses is taken down, and not before: with the real agent, a real `sshd`, the real guard, and Lambda's
//! stand-in, which bills.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::{folder, is_ready, log};
use crate::lambda::site::{Site, spec_into};
use crate::support::{TestEnv, until, until_or};

/// What Ray and Jupyter say.
#[derive(Clone, Copy, PartialEq)]
enum Use {
    JobWaits,
    KernelBusy,
    Nobody,
}

/// The host of the cluster: a login on this machine, and a guard with a home of its own.
struct Host {
    sshd: Child,
    guard: Child,
    says: Arc<Mutex<Use>>,
}

impl Drop for Host {
    fn drop(&mut self) {
        for child in [&mut self.sshd, &mut self.guard] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Writes a program.
fn program(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

impl Host {
    /// One that connections of this user's `ssh` lead to, whatever its address.
    fn start(env: &mut TestEnv) -> Self {
        let root = env.root().join("host");
        let (home, bin) = (root.join("guard"), root.join("bin"));
        std::fs::create_dir_all(&home).unwrap();
        std::fs::create_dir_all(&bin).unwrap();
        let guard = concat!(env!("CARGO_MANIFEST_DIR"), "/templates/end/guard.py");
        let says = Arc::new(Mutex::new(Use::JobWaits));
        let services = services(Arc::clone(&says));
        let settings = serde_json::json!({
            "v": 1, "host": "host0", "leads": true, "hosts": 1, "home": home, "data": home, "warning_s": 600, "then": "down",
            "save": [], "stores": {"own": null, "outside": null},
            "ray": {"gcs": "127.0.0.1:1", "dashboard": services, "token": null, "ray": "ray"},
            "idle": {"after_s": 60}, "jupyter": {"url": services, "token": null},
        });
        std::fs::write(home.join("guard.json"), settings.to_string()).unwrap();
        // The guard is in a container: `docker exec -i NAME python3 -I -B PROGRAM VERB HOME`.
        let home = home.display();
        program(
            &bin.join("docker"),
            &format!("#!/bin/sh\n[ \"$1\" = exec ] || exit 0\nexec python3 -I -B {guard} \"$8\" {home}\n"),
        );
        program(&bin.join("sudo"), "#!/bin/sh\nwhile [ \"${1#-}\" != \"$1\" ]; do shift; done\nexec \"$@\"\n");
        let sshd = sshd(&root, &bin, env);
        let run = Command::new("python3").args(["-I", "-B", guard, "run"]).arg(root.join("guard")).spawn().unwrap();
        Self { sshd, guard: run, says }
    }
}

/// Starts a real `sshd`, and puts an `ssh` before the real one that leads there.
fn sshd(root: &Path, bin: &Path, env: &mut TestEnv) -> Child {
    let key = |name: &str| {
        let path = root.join(name);
        let made =
            Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&path).status().unwrap();
        assert!(made.success());
        path.display().to_string()
    };
    let (host_key, login) = (key("host_key"), key("login"));
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let config = format!(
        "ListenAddress 127.0.0.1:{port}\nHostKey {host_key}\nAuthorizedKeysFile {login}.pub\nPidFile none\nUsePAM no\n\
         StrictModes no\nPermitRootLogin prohibit-password\nSetEnv PATH={path}\n"
    );
    std::fs::create_dir_all("/run/sshd").unwrap();
    std::fs::write(root.join("sshd_config"), config).unwrap();
    let mut sshd = Command::new("/usr/sbin/sshd");
    sshd.args(["-D", "-e", "-f"]).arg(root.join("sshd_config")).stdin(Stdio::null()).stderr(Stdio::null());
    let sshd = sshd.spawn().unwrap();
    until("the sshd answers", 20, || TcpStream::connect(("127.0.0.1", port)).ok());
    let options = format!(
        "-o HostName=127.0.0.1 -o Port={port} -o User=root -o IdentityFile={login} -o IdentitiesOnly=yes \
         -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
    );
    let real = std::env::var("PATH").unwrap();
    let folder = env.root().join("bin");
    let text = format!(
        "#!/bin/sh\nPATH='{real}'\nfor word in \"$@\"; do [ \"$word\" != -G ] || exec ssh \"$@\"; done\nexec ssh {options} \"$@\"\n"
    );
    program(&folder.join("ssh"), &text);
    sshd
}

/// Stands in for Ray's and Jupyter's APIs, as far as the guard asks them; returns the URL of both.
fn services(says: Arc<Mutex<Use>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = answer(stream, *says.lock().unwrap());
        }
    });
    url
}

fn answer(stream: TcpStream, says: Use) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).take(16_384);
    let mut request = String::new();
    lines.read_line(&mut request)?;
    let mut line = String::new();
    while lines.read_line(&mut line)? > 2 {
        line.clear();
    }
    let old = "2026-01-01T00:00:00Z";
    let body = match (request.contains("/api/jobs/"), says) {
        (true, Use::JobWaits) => serde_json::json!([{ "submission_id": "a", "job_id": null, "status": "PENDING" }]),
        (true, _) => serde_json::json!([{ "submission_id": "a", "job_id": null, "status": "SUCCEEDED" }]),
        (false, Use::KernelBusy) => serde_json::json!([{ "execution_state": "busy", "last_activity": old }]),
        (false, _) => serde_json::json!([{ "execution_state": "idle", "last_activity": old }]),
    };
    let body = body.to_string();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n";
    write!(&stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len())
}

/// The first amount in US dollars after this text, in cents.
fn cents(text: &str, after: &str) -> i64 {
    let rest = text.split(after).nth(1).unwrap_or_else(|| panic!("no `{after}`: {text}"));
    let amount: f64 = rest.split_whitespace().next().unwrap().parse().unwrap();
    (amount * 100.0).round() as i64
}

#[test]
#[ignore = "testbed"]
fn a_cluster_that_nobody_uses_is_taken_down_and_not_while_a_job_waits_or_a_kernel_works() {
    let mut site = Site::prompt();
    let file = spec_into(&site.env, 1, "type: gpu_8x_h100_sxm5", "");
    let spec = std::fs::read_to_string(site.env.work().join(&file)).unwrap();
    site.env.write(&file, &format!("{spec}idle: {{ after: 1m }}\n"));
    let _ = site.up_to_ssh(&file).says("when nobody uses it for 1m").says("it is taken down");
    let host = Host::start(&mut site.env);
    is_ready(&site.env);
    let idle = || {
        let status = site.run(&["status", "--offline", "--output", "json", "-c", "demo"]).exits(0).json();
        status[0]["end"]["idle"].clone()
    };
    let saw = |what: &str| until_or(what, 60, || (idle()["saw"] == what).then_some(()), || log(&site.env));
    let stays = |seconds: u64| {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(seconds) {
            assert_eq!(site.counts()[0], 1, "it was taken down while it was used: {}", log(&site.env));
            std::thread::sleep(Duration::from_secs(1));
        }
    };
    saw("a job waits");
    stays(75);
    *host.says.lock().unwrap() = Use::KernelBusy;
    saw("a kernel is at work");
    stays(20);
    *host.says.lock().unwrap() = Use::Nobody;
    let begun = Instant::now();
    until_or("it is seen that nobody uses it", 60, || idle()["since"].as_str().map(drop), || log(&site.env));
    let _ = site.run(&["status", "--offline", "-c", "demo"]).exits(0).prints("warning: nobody has used it since");
    until_or("it is gone", 180, || (site.counts()[0] == 0).then_some(()), || log(&site.env));
    let took = begun.elapsed().as_secs_f64();
    println!("gone {took:.0} s after its last use, with idle.after: 60 s");
    assert!(took > 55.0, "{took}");
    until("the cluster's folder is gone", 30, || (!folder(&site.env).exists()).then_some(()));
    let ended = until("the reason", 10, || {
        let outcome = site.run(&["status", "-c", "demo"]).exits(6);
        Some(outcome).filter(|outcome| outcome.stderr.contains("nobody has used it since"))
    });
    let reported = cents(&ended.stderr, "it cost about ");
    let billed: f64 = site
        .ours()
        .instances
        .iter()
        .map(|one| {
            let seconds = one.ended.unwrap().duration_since(one.launched).as_secs_f64();
            f64::from(one.cents) * seconds / 3600.0
        })
        .sum();
    println!("reported: {reported} cents; billed: {billed:.2} cents");
    // To a cent, and what the end of an instance is seen late by: it is looked for every 2.5 seconds.
    let a_poll = f64::from(site.ours().instances[0].cents) * 2.5 / 3600.0;
    let more = reported as f64 - billed;
    assert!((-1.0..=1.0 + a_poll).contains(&more), "{reported} and {billed}");
}
