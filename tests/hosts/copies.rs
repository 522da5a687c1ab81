//! Copies from a malicious host, and to one whose folders contain links: through a real sshd of this user.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gpucl::event::Bus;
use gpucl::host::{Connections, HostEntry, HostPath, SshHost, SshTarget, download, upload};
use gpucl::sandbox::hosts::{Config, LocalHosts, NewHost};

/// A host, its files, and the connection to it.
pub(super) struct Host {
    folder: tempfile::TempDir,
    hosts: LocalHosts,
    ssh: SshHost,
    connections: Connections,
}

impl Host {
    pub(super) async fn start(port: u16) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["bin", "state", "here"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let key = folder.path().join("key");
        let mut made = std::process::Command::new("ssh-keygen");
        assert!(made.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key).status().unwrap().success());
        let path = format!("{}:/usr/bin:/bin", folder.path().join("bin").display());
        let environment = vec![("PATH".to_owned(), path)];
        let hosts = LocalHosts::new(Config { folder: folder.path().join("hosts"), port, environment }).unwrap();
        let public = std::fs::read_to_string(folder.path().join("key.pub")).unwrap();
        let new = NewHost { id: "i-1".to_owned(), public_keys: vec![public.trim().to_owned()], ..NewHost::default() };
        let address = hosts.boot(&new).await.unwrap();
        let (bus, _) = Bus::new();
        let connections =
            Connections::new(folder.path().join("state"), folder.path().join("run"), folder.path().into(), bus);
        let target = SshTarget {
            node: address.ip().to_string(),
            port: Some(port),
            identity_file: Some(key),
            ..SshTarget::default()
        };
        connections.write(&[HostEntry { names: vec!["host-0".to_owned()], target }]).unwrap();
        let ssh = connect(&connections).await;
        Self { folder, hosts, ssh, connections }
    }

    /// Another connection to it.
    pub(super) async fn connect(&self) -> SshHost {
        connect(&self.connections).await
    }

    /// The file for `ssh -F`.
    pub(super) fn config(&self) -> PathBuf {
        self.connections.config_file()
    }

    /// The home folder on the host.
    pub(super) fn home(&self) -> PathBuf {
        self.folder.path().join("hosts/i-1/home")
    }

    /// The working folder on this side.
    pub(super) fn here(&self) -> PathBuf {
        self.folder.path().join("here")
    }

    /// From now on the host's `tar` gives this stream, whatever it is asked for.
    fn gives(&self, stream: &[u8]) {
        std::fs::write(self.folder.path().join("bin/stream"), stream).unwrap();
        let tar = self.folder.path().join("bin/tar");
        std::fs::write(&tar, "#!/bin/sh\nexec cat \"${0%/*}/stream\"\n").unwrap();
        std::fs::set_permissions(&tar, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub(super) async fn end(self) {
        self.ssh.close().await;
        self.hosts.end_all().await.unwrap();
    }
}

async fn connect(connections: &Connections) -> SshHost {
    let home = "~/.gpucl".to_owned();
    connections.connect("host-0", home, Duration::from_secs(20), std::future::pending()).await.unwrap()
}

fn file(archive: &mut tar::Builder<Vec<u8>>, name: &str, mode: u32) {
    let mut header = tar::Header::new_gnu();
    header.set_size(5);
    header.set_mode(mode);
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_cksum();
    archive.append(&header, &b"evil\n"[..]).unwrap();
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = entries.collect();
    names.sort();
    names
}

#[tokio::test]
#[ignore = "testbed"]
async fn a_host_writes_only_the_requested_files() {
    let host = Host::start(2391).await;
    let mut archive = tar::Builder::new(Vec::new());
    file(&mut archive, "results.txt", 0o644);
    file(&mut archive, ".bashrc", 0o644);
    host.gives(&archive.into_inner().unwrap());
    std::fs::write(host.home().join("results.txt"), "x").unwrap();
    let here = host.here();
    let refused = download(&host.ssh, HostPath::plain("results.txt", false), &here).await;
    assert_eq!(names(&here), [] as [&str; 0], "{refused:?}");
    assert!(refused.unwrap_err().to_string().contains(".bashrc"));
    // A mere job can leave a link where its results are expected, and write through it the next time.
    std::fs::remove_file(host.folder.path().join("bin/tar")).unwrap();
    symlink("/etc", host.home().join("results")).unwrap();
    let linked = download(&host.ssh, HostPath::plain("results", false), &here).await;
    assert_eq!(names(&here), [] as [&str; 0], "{linked:?}");
    symlink(host.folder.path().join("bin"), here.join("results")).unwrap();
    std::fs::remove_file(host.home().join("results")).unwrap();
    std::fs::create_dir(host.home().join("results")).unwrap();
    std::fs::write(host.home().join("results/tar"), "evil").unwrap();
    let through = download(&host.ssh, HostPath::plain("results", false), &here).await;
    assert!(!host.folder.path().join("bin/tar").exists(), "{through:?}");
    // Nothing is set to another user, and what is honest comes whole.
    std::fs::remove_file(here.join("results")).unwrap();
    let program = host.home().join("results/tool");
    std::fs::write(&program, "x").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o6755)).unwrap();
    std::fs::hard_link(&program, host.home().join("results/twin")).unwrap();
    download(&host.ssh, HostPath::plain("results/", false), &here).await.unwrap();
    assert_eq!(names(&here.join("results")), ["tar", "tool", "twin"]);
    let mode = std::fs::metadata(here.join("results/tool")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7000, 0, "{mode:o}");
    assert_eq!(names(&here), ["results"], "nothing else is left");
    host.end().await;
}

#[tokio::test]
#[ignore = "testbed"]
async fn links_on_a_host_do_not_redirect_a_copy() {
    let host = Host::start(2392).await;
    let (here, home) = (host.here(), host.home());
    std::fs::create_dir_all(here.join("data/sub")).unwrap();
    std::fs::write(here.join("data/sub/new"), "new").unwrap();
    std::fs::write(here.join("data/top"), "new").unwrap();
    std::fs::create_dir_all(home.join("inbox/data")).unwrap();
    std::fs::create_dir(home.join("victim")).unwrap();
    std::fs::write(home.join("victim/file"), "old").unwrap();
    // What a job can leave where a person copies to, perhaps as root: links to a folder and a file in other places.
    symlink(home.join("victim"), home.join("inbox/data/sub")).unwrap();
    symlink(home.join("victim/file"), home.join("inbox/data/top")).unwrap();
    let sent = upload(&host.ssh, &[here.join("data")], HostPath::plain("inbox/", false)).await;
    assert_eq!(names(&home.join("victim")), ["file"], "{sent:?}");
    assert_eq!(std::fs::read_to_string(home.join("victim/file")).unwrap(), "old", "{sent:?}");
    assert!(sent.unwrap_err().to_string().contains("is a link there"));
    assert_eq!(names(&home.join("inbox")), ["data"], "nothing half is left");
    // A folder that is really there is merged into.
    std::fs::remove_file(home.join("inbox/data/sub")).unwrap();
    std::fs::remove_file(home.join("inbox/data/top")).unwrap();
    std::fs::create_dir(home.join("inbox/data/sub")).unwrap();
    std::fs::write(home.join("inbox/data/sub/kept"), "kept").unwrap();
    upload(&host.ssh, &[here.join("data")], HostPath::plain("inbox/", false)).await.unwrap();
    assert_eq!(names(&home.join("inbox/data/sub")), ["kept", "new"]);
    assert_eq!(names(&home.join("inbox/data")), ["sub", "top"]);
    host.end().await;
}
