//! The files of one host.

use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt};
use std::path::Path;

use fs_err::os::unix::fs::OpenOptionsExt as _;

use super::NewHost;
use super::user_data::UserData;
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::util::child;

/// Where distributions install the server of `sftp` and `scp`.
const SFTP: [&str; 4] = [
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/lib/ssh/sftp-server",
    "/usr/libexec/sftp-server",
];

/// Writes all files that a host's sshd needs.
pub(super) async fn write(
    folder: &Path,
    address: SocketAddr,
    new: &NewHost,
    environment: &[(String, String)],
) -> Result<()> {
    let doing = || format!("write the files of the host {}", new.id);
    let user_data = UserData::read(new.user_data.as_deref())?;
    let home = folder.join("home");
    // Whatever the umask is, the folder is never open to others.
    folders(&home, 0o700).doing(ErrorKind::Host, doing)?;
    for private in [folder, home.as_path()] {
        fs_err::set_permissions(private, PermissionsExt::from_mode(0o700)).doing(ErrorKind::Host, doing)?;
    }
    if rustix::process::geteuid().is_root() {
        // Started by root, sshd confines unauthenticated connections to this folder, which the package creates at boot.
        folders(Path::new("/run/sshd"), 0o755).doing(ErrorKind::Host, doing)?;
    }
    let put = |name: &str, mode: u32, text: &str| {
        let path = folder.join(name);
        let opened = fs_err::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&path);
        let mut file = opened.doing(ErrorKind::Host, doing)?;
        fs_err::set_permissions(&path, PermissionsExt::from_mode(mode)).doing(ErrorKind::Host, doing)?;
        file.write_all(text.as_bytes()).doing(ErrorKind::Host, doing)
    };
    match user_data.host_key() {
        Some(key) => put("host_key", 0o600, key)?,
        None => {
            make_host_key(&folder.join("host_key")).await?;
            fs_err::set_permissions(folder.join("host_key.pub"), PermissionsExt::from_mode(0o600))
                .doing(ErrorKind::Host, doing)?;
        }
    }
    // The log of sshd: created now, so that nobody else can read it.
    put("sshd.log", 0o600, "")?;
    let keys: Vec<&str> = new.public_keys.iter().chain(&user_data.ssh_authorized_keys).map(String::as_str).collect();
    put("authorized_keys", 0o600, &format!("{}\n", keys.join("\n")))?;
    put("login", 0o700, &login(folder, environment))?;
    put("sshd_config", 0o600, &config(folder, address))
}

fn folders(path: &Path, mode: u32) -> std::io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(mode).create(path)
}

async fn make_host_key(path: &Path) -> Result<()> {
    let doing = || "generate a host key".to_owned();
    let made = child::async_command("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"])
        .arg(path)
        .output()
        .await
        .doing(ErrorKind::Host, doing)?;
    match made.status.success() {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::Host, doing()).because(String::from_utf8_lossy(&made.stderr).trim())),
    }
}

/// The program of every login: a shell in the host's own home.
///
/// Processes are marked by the host's folder, which is unique; ids may repeat in other stand-ins.
fn login(folder: &Path, environment: &[(String, String)]) -> String {
    let mut text = String::from("#!/bin/sh\n");
    let own = [
        ("HOME".to_owned(), folder.join("home").display().to_string()),
        ("STAND_IN_HOST".to_owned(), folder.display().to_string()),
    ];
    for (name, value) in environment.iter().chain(&own) {
        text.push_str(&format!("export {name}={}\n", word(value)));
    }
    text.push_str(
        "cd \"$HOME\" || exit 1\n\
         if [ -n \"${SSH_ORIGINAL_COMMAND:-}\" ]; then\n    \
             command=$SSH_ORIGINAL_COMMAND\n    unset SSH_ORIGINAL_COMMAND\n    exec sh -c \"$command\"\nfi\n\
         exec \"${SHELL:-sh}\"\n",
    );
    text
}

/// Quotes a text as one shell word.
fn word(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn config(folder: &Path, address: SocketAddr) -> String {
    let at = |name: &str| format!("\"{}\"", folder.join(name).display());
    let mut text = format!(
        "# A host of a stand-in cloud, on the loopback.\n\
         ListenAddress {address}\n\
         HostKey {}\n\
         AuthorizedKeysFile {}\n\
         PidFile none\n\
         UsePAM no\n\
         StrictModes no\n\
         AuthenticationMethods publickey\n\
         PasswordAuthentication no\n\
         KbdInteractiveAuthentication no\n\
         PermitRootLogin prohibit-password\n\
         PermitUserRC no\n\
         X11Forwarding no\n\
         PrintMotd no\n\
         PrintLastLog no\n\
         MaxStartups 100\n\
         MaxSessions 10\n\
         ForceCommand {}\n",
        at("host_key"),
        at("authorized_keys"),
        word(&folder.join("login").display().to_string())
    );
    if let Some(sftp) = SFTP.iter().find(|path| Path::new(path).is_file()) {
        text.push_str(&format!("Subsystem sftp {sftp}\n"));
    }
    text
}
