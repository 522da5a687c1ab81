use tokio::process::Command;

use super::*;

/// A key pair for logins, and hosts that accept it. The port is unique among these tests.
struct Fixture {
    folder: tempfile::TempDir,
    hosts: LocalHosts,
}

impl Fixture {
    fn new(port: u16) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("key");
        let mut made = std::process::Command::new("ssh-keygen");
        made.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key);
        assert!(made.status().unwrap().success());
        let environment = vec![("GREETING".to_owned(), "it's me".to_owned())];
        let config = Config { folder: folder.path().join("hosts"), port, environment };
        Self { hosts: LocalHosts::new(config).unwrap(), folder }
    }

    fn new_host(&self, id: &str) -> NewHost {
        let public = fs_err::read_to_string(self.folder.path().join("key.pub")).unwrap();
        NewHost { id: id.to_owned(), public_keys: vec![public.trim().to_owned()], ..NewHost::default() }
    }

    /// Runs a command on a host, and returns what it prints.
    async fn at(&self, address: SocketAddr, command: &str) -> String {
        let output = Command::new("ssh")
            .args(["-F", "none", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "LogLevel=ERROR"])
            .args(["-o", "UserKnownHostsFile=/dev/null", "-o", "IdentitiesOnly=yes", "-i"])
            .arg(self.folder.path().join("key"))
            .args(["-p", &address.port().to_string(), &address.ip().to_string(), command])
            .stdin(Stdio::null())
            .output()
            .await
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}

fn is_alive(pid: &str) -> bool {
    let stat = fs_err::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

#[tokio::test]
#[ignore = "testbed"]
async fn a_host_has_its_own_home_and_ends_with_all_its_processes() {
    let fixture = Fixture::new(2291);
    let first = fixture.hosts.boot(&fixture.new_host("i-1")).await.unwrap();
    let second = fixture.hosts.boot(&fixture.new_host("i-2")).await.unwrap();
    assert_ne!(first.ip(), second.ip());
    assert_eq!((first.port(), second.port()), (2291, 2291));
    let seen = fixture.at(first, "pwd; echo $HOME; echo $GREETING").await;
    let home = fixture.folder.path().join("hosts/i-1/home").display().to_string();
    assert_eq!(seen.lines().collect::<Vec<_>>(), [home.as_str(), &home, "it's me"]);
    // Even without the private folder, nobody else could read a key or a log.
    let folder = fixture.folder.path().join("hosts/i-1");
    let entries = fs_err::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    for path in entries.chain([folder.clone()]) {
        let mode = std::os::unix::fs::PermissionsExt::mode(&fs_err::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o077, 0, "{} {mode:o}", path.display());
    }
    // Processes that left their session.
    let pid = fixture.at(first, "setsid -f sh -c 'echo $$; exec sleep 600 >/dev/null 2>&1'").await;
    let other = fixture.at(second, "setsid -f sh -c 'echo $$; exec sleep 600 >/dev/null 2>&1'").await;
    assert!(is_alive(&pid) && is_alive(&other));
    fixture.hosts.end("i-1").await.unwrap();
    assert!(!is_alive(&pid), "the first host's process is still there");
    assert!(is_alive(&other), "the second host's process went with the first");
    assert!(!fixture.folder.path().join("hosts/i-1").exists());
    assert!(tokio::net::TcpStream::connect(first).await.is_err(), "its server still answers");
    fixture.hosts.end_all().await.unwrap();
    assert!(!is_alive(&other) && !fixture.folder.path().join("hosts").exists());
    fixture.hosts.end("i-1").await.unwrap();
}

#[tokio::test]
#[ignore = "testbed"]
async fn hosts_end_when_they_are_dropped() {
    let fixture = Fixture::new(2292);
    let address = fixture.hosts.boot(&fixture.new_host("i-1")).await.unwrap();
    let pid = fixture.at(address, "setsid -f sh -c 'echo $$; exec sleep 600 >/dev/null 2>&1'").await;
    let Fixture { folder, hosts } = fixture;
    drop(hosts);
    let begun = Instant::now();
    while is_alive(&pid) || folder.path().join("hosts").exists() {
        assert!(begun.elapsed() < Duration::from_secs(30), "it is still there");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
#[ignore = "testbed"]
async fn a_host_has_the_host_key_from_its_user_data() {
    let fixture = Fixture::new(2293);
    let key = fixture.folder.path().join("host");
    let made =
        std::process::Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key).status();
    assert!(made.unwrap().success());
    let private: String = fs_err::read_to_string(&key).unwrap().lines().map(|line| format!("    {line}\n")).collect();
    let mut new = fixture.new_host("i-1");
    new.user_data = Some(format!("#cloud-config\nssh_keys:\n  ed25519_private: |\n{private}"));
    let address = fixture.hosts.boot(&new).await.unwrap();
    let port = address.port().to_string();
    let shown = Command::new("ssh-keyscan").args(["-t", "ed25519", "-p", &port, &address.ip().to_string()]).output();
    let shown = String::from_utf8(shown.await.unwrap().stdout).unwrap();
    let public = fs_err::read_to_string(key.with_extension("pub")).unwrap();
    let blob = public.split_whitespace().nth(1).unwrap();
    assert!(shown.contains(blob), "{shown}");
    fixture.hosts.end_all().await.unwrap();
}
