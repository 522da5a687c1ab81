use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::super::{HostEntry, SshTarget};
use super::*;
use crate::error::{Error, ErrorKind};
use crate::event::Bus;
use crate::util::process::Identity;

/// Makes a key pair and returns its public half.
fn make_key(file: &Path) -> String {
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"]).arg(file).status();
    assert!(made.unwrap().success());
    plain(&fs_err::read_to_string(file.with_extension("pub")).unwrap())
}

fn write_program(file: &Path, text: &str) {
    fs_err::write(file, text).unwrap();
    fs_err::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// A folder with a program named `sshd` that has the options of the real one, and otherwise runs what a login would run.
struct FakeServer {
    folder: tempfile::TempDir,
    given: String,
}

impl FakeServer {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        let given = make_key(&folder.path().join("host_key"));
        let text = format!(
            "#!/bin/sh\ncase \" $* \" in\n\
             *' -T '*) echo port 22; echo hostkey {0}_ecdsa; echo hostkey {0}; exit ;;\n\
             *' -t '*) [ ! -e {1} ] || {{ echo bad option >&2; exit 255; }}; exit 0 ;;\nesac\n\
             trap 'echo reloaded >>{2}' HUP\n\
             sh -s <\"$INPUT\" & child=$!\n\
             while ! wait $child; do kill -0 $child 2>/dev/null || break; done\n",
            at("host_key"),
            at("mistake"),
            at("log")
        );
        write_program(&folder.path().join("sshd"), &text);
        fs_err::write(folder.path().join("sshd_config"), "").unwrap();
        Self { folder, given }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn key(&self) -> String {
        plain(&fs_err::read_to_string(self.at("host_key.pub")).unwrap())
    }

    /// Runs a step as a login to this server does, and returns its output.
    fn step(&self, step: &str, own: &str) -> String {
        let program = format!("step={step}\ngiven={}\nown={}\n{PROGRAM}", quote(&self.given), quote(own));
        fs_err::write(self.at("input"), program).unwrap();
        let path = format!("{}:/usr/bin:/bin", self.folder.path().display());
        // A shell cannot handle a signal that was ignored when it began, as below `nohup`.
        let mut run = Command::new("env");
        run.arg("--default-signal=HUP").arg(self.at("sshd")).arg("-f").arg(self.at("sshd_config")).env("PATH", path);
        let output = run.env("INPUT", self.at("input")).stdin(Stdio::null()).output().unwrap();
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    }

    fn reloads(&self) -> usize {
        fs_err::read_to_string(self.at("log")).unwrap_or_default().lines().count()
    }
}

#[test]
fn a_host_makes_its_key_once_and_takes_it_in_place_of_the_given_one() {
    let server = FakeServer::new();
    fs_err::set_permissions(server.at("host_key"), std::fs::Permissions::from_mode(0o400)).unwrap();
    // Left by a host that lost its power.
    fs_err::write(server.at("host_key.gpucl"), "half of a ke").unwrap();
    let made = server.step("make", "");
    let own = made.trim().strip_prefix("::own_key ").unwrap_or_else(|| panic!("{made}")).to_owned();
    assert_ne!(own, server.given);
    assert_eq!(server.step("make", ""), made, "repeated, it shows the same");
    assert_eq!((server.key(), server.reloads()), (server.given.clone(), 0), "nothing was changed yet");

    assert_eq!(server.step("take", &own), "::taken\n");
    assert_eq!((server.key(), server.reloads()), (own.clone(), 1));
    let derived = Command::new("ssh-keygen").arg("-y").arg("-f").arg(server.at("host_key")).output().unwrap();
    assert_eq!(plain(&String::from_utf8(derived.stdout).unwrap()), own);
    let mode = fs_err::metadata(server.at("host_key")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o400, "the server reads it as it read the other one");
    let names = || {
        let files = fs_err::read_dir(server.folder.path()).unwrap();
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).filter(|name| name.contains("gpucl")).count()
    };
    assert_eq!(names(), 0, "nothing is left beside it");
    // Whoever goes on after a crash repeats both.
    assert_eq!(server.step("make", &own), made);
    assert_eq!(server.step("take", &own), "::taken\n");
    assert_eq!((server.key(), server.reloads(), names()), (own, 2, 0));
}

#[test]
fn a_host_whose_server_would_not_come_back_is_left_as_it_is() {
    let server = FakeServer::new();
    let made = server.step("make", "");
    let own = made.trim().strip_prefix("::own_key ").unwrap();
    fs_err::write(server.at("mistake"), "").unwrap();
    assert_eq!(server.step("take", own), "::failed its SSH server refuses its own configuration: bad option\n");
    fs_err::remove_file(server.at("mistake")).unwrap();
    let other = FakeServer::new().given;
    assert!(server.step("take", &other).contains("is no longer the key that was made"));
    assert_eq!((server.key(), server.reloads()), (server.given.clone(), 0));
    let stranger = FakeServer { given: other, ..server };
    let said = stranger.step("make", "");
    assert_eq!(said, "::failed none of the host keys that its SSH server reads is the one in its user data\n");
}

#[test]
fn both_keys_are_accepted_until_a_connection_has_shown_which_is_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let mut keys = HostKeys::read(folder.path()).unwrap();
    assert_eq!(keys.accepted("ssh-ed25519 AAAA1 comment\n"), ["ssh-ed25519 AAAA1 comment"]);
    let mut key = Replaced { given: "ssh-ed25519 AAAA1".into(), own: "ssh-ed25519 AAAA2".into(), is_in_use: false };
    keys.set(key.clone());
    keys.write(folder.path()).unwrap();
    let keys = HostKeys::read(folder.path()).unwrap();
    assert_eq!(keys.accepted("ssh-ed25519 AAAA1"), ["ssh-ed25519 AAAA1", "ssh-ed25519 AAAA2"]);
    key.is_in_use = true;
    let mut keys = keys;
    keys.set(key);
    assert_eq!(keys.accepted("ssh-ed25519 AAAA1"), ["ssh-ed25519 AAAA2"]);
    // Another host, later at the same address, has a given key of its own.
    assert_eq!(keys.accepted("ssh-ed25519 AAAA3"), ["ssh-ed25519 AAAA3"]);
    fs_err::write(folder.path().join("host_keys.json"), r#"{"version": 2, "replaced": []}"#).unwrap();
    assert!(HostKeys::read(folder.path()).unwrap_err().to_string().contains("it has version 2"));
}

/// A real `sshd` of this user, with a given key.
struct Server {
    folder: tempfile::TempDir,
    port: u16,
    given: String,
    child: Child,
}

impl Server {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let given = make_key(&folder.path().join("host_key"));
        let login = make_key(&folder.path().join("login"));
        fs_err::write(folder.path().join("authorized_keys"), login).unwrap();
        if rustix::process::geteuid().is_root() {
            fs_err::create_dir_all("/run/sshd").unwrap();
        }
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let at = |name: &str| folder.path().join(name).display().to_string();
        let config = format!(
            "ListenAddress 127.0.0.1:{port}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nUsePAM no\nStrictModes no\n\
             PermitRootLogin prohibit-password\n",
            at("host_key"),
            at("authorized_keys")
        );
        fs_err::write(folder.path().join("sshd_config"), config).unwrap();
        let child = Self::launch(folder.path());
        let server = Self { folder, port, given, child };
        server.answers();
        server
    }

    fn launch(folder: &Path) -> Child {
        let mut sshd = Command::new("/usr/sbin/sshd");
        sshd.args(["-D", "-e", "-f"]).arg(folder.join("sshd_config")).stdin(Stdio::null());
        sshd.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    fn answers(&self) {
        let begun = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(20), "sshd does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn restart(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.child = Self::launch(self.folder.path());
        self.answers();
    }

    /// What a gpucl process that starts now has of the cluster.
    fn connections(&self) -> Connections {
        let (events, _inbox) = Bus::new();
        let folder = self.folder.path();
        let connections = Connections::new(folder.join("state"), folder.join("r"), folder.to_owned(), events);
        let target = SshTarget {
            node: "127.0.0.1".to_owned(),
            port: Some(self.port),
            identity_file: Some(folder.join("login")),
            host_key: Some(self.given.clone()),
            ..SshTarget::default()
        };
        connections.write(&[HostEntry { names: vec!["host-0".to_owned()], target }]).unwrap();
        connections
    }

    async fn connect(&self, connections: &Connections) -> SshHost {
        let wait = Duration::from_secs(5);
        connections.connect("host-0", "~/.gpucl".to_owned(), wait, std::future::pending()).await.unwrap()
    }

    /// The keys that our `known_hosts` has.
    fn known(&self) -> Vec<String> {
        let text = fs_err::read_to_string(self.folder.path().join("state/known_hosts")).unwrap();
        text.lines().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect()
    }

    /// Whether it can be connected to by somebody who accepts only this key.
    fn shows(&self, key: &str) -> bool {
        let known = self.folder.path().join("known");
        fs_err::write(&known, format!("host {key}\n")).unwrap();
        let mut ssh = Command::new("ssh");
        ssh.args(["-F", "none", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "HostKeyAlias=host"]);
        ssh.arg("-o").arg(format!("UserKnownHostsFile={}", known.display())).arg("-i");
        ssh.arg(self.folder.path().join("login")).args(["-p", &self.port.to_string(), "127.0.0.1", "true"]);
        ssh.stdin(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn says(host: &SshHost, program: &str) -> String {
    let mut said = String::new();
    assert_eq!(host.as_user().exec(program, &mut |_, line| said.push_str(line)).await.unwrap(), ExecEnd::Exited(0));
    said
}

#[tokio::test]
#[ignore = "testbed"]
async fn a_host_has_only_its_own_key_after_the_first_connection() {
    let server = Server::start();
    let connections = server.connections();
    let host = server.connect(&connections).await;
    assert_eq!(server.known(), [server.given.as_str()]);
    let process = Identity::of(server.child.id()).unwrap();
    connections.give_own_key(&host).await.unwrap();
    let [own] = server.known().try_into().unwrap();
    assert!(own != server.given && server.shows(&own) && !server.shows(&server.given));
    assert_eq!(Identity::of(server.child.id()), Some(process), "the server was reloaded, not started again");
    assert_eq!(says(&host, "echo still there").await, "still there", "the connection from before is alive");
    let fresh = host.fresh().await.unwrap();
    assert_eq!(says(&fresh, "echo here").await, "here");
    // The key is nowhere but on the host.
    let private = fs_err::read_to_string(server.folder.path().join("host_key")).unwrap();
    for entry in fs_err::read_dir(server.folder.path().join("state")).unwrap() {
        let text = fs_err::read_to_string(entry.unwrap().path()).unwrap();
        assert!(!text.contains(private.lines().nth(1).unwrap()) && !text.contains("PRIVATE"), "{text}");
    }
    let record = fs_err::read_to_string(server.folder.path().join("state/host_keys.json")).unwrap();
    connections.give_own_key(&host).await.unwrap();
    let again = server.connections();
    again.give_own_key(&server.connect(&again).await).await.unwrap();
    assert_eq!(fs_err::read_to_string(server.folder.path().join("state/host_keys.json")).unwrap(), record);
    assert_eq!(server.known(), [own]);
}

#[tokio::test]
#[ignore = "testbed"]
async fn a_crash_at_any_step_locks_nobody_out() {
    for (crash, restarts) in [(Step::Made, false), (Step::Known, true), (Step::Taken, true), (Step::Proven, false)] {
        let mut server = Server::start();
        let connections = server.connections();
        let host = server.connect(&connections).await;
        let killed = |step| match step == crash {
            true => Err(Error::new(ErrorKind::Cancelled, "go on")),
            false => Ok(()),
        };
        connections.give_own_key_by(&host, &mut { killed }).await.unwrap_err();
        drop((host, connections));
        if restarts {
            server.restart();
        }
        let connections = server.connections();
        let host = server.connect(&connections).await;
        assert_eq!(says(&host, "echo in").await, "in", "after {crash:?}");
        connections.give_own_key(&host).await.unwrap();
        let [own] = server.known().try_into().unwrap();
        let is_right = own != server.given && server.shows(&own) && !server.shows(&server.given);
        assert!(is_right, "after {crash:?}, restarted: {restarts}");
        let left = fs_err::read_dir(server.folder.path()).unwrap();
        let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        assert!(!left.iter().any(|name| name.to_string_lossy().contains("gpucl")), "{left:?}");
    }
}

#[tokio::test]
#[ignore = "testbed"]
async fn a_server_that_does_not_take_the_key_keeps_both_known() {
    let server = Server::start();
    let connections = server.connections();
    let host = server.connect(&connections).await;
    // It cannot be read again: what it was started with is gone.
    fs_err::remove_file(server.folder.path().join("sshd_config")).unwrap();
    let error = connections.give_own_key(&host).await.unwrap_err();
    assert!(error.doing().contains("replace the host key"), "{error}");
    assert!(server.known().contains(&server.given) && server.shows(&server.given), "{error}");
}
