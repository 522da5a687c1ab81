//! Asks the local `ssh` and `ssh-keygen` what they know without a connection.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::SshTarget;
use super::config::{HostEntry, Resolved};
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::util::child;

/// Runs an OpenSSH program without input; returns whether it succeeded, its stdout and its stderr.
fn ask<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> Result<(bool, String, String)> {
    let output = child::command(program).args(arguments).stdin(Stdio::null()).output();
    if let Err(error) = &output
        && error.kind() == std::io::ErrorKind::NotFound
    {
        return Err(no_program(program));
    }
    let output = output.doing(ErrorKind::Host, || format!("run `{program}`"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((output.status.success(), text(&output.stdout), text(&output.stderr)))
}

/// The error when OpenSSH is not installed here.
pub(super) fn no_program(program: &str) -> Error {
    Error::new(ErrorKind::Host, format!("run `{program}`"))
        .because("this machine has no such program")
        .hint("sudo apt-get install openssh-client")
}

/// Resolves a node, which may be an alias, with the user's configuration.
pub(super) fn resolve(entry: &HostEntry) -> Result<Resolved> {
    let node = entry.target.node.as_str();
    let doing = || format!("resolve the SSH settings of {node}");
    // A name that begins with a hyphen would be an option.
    if node.is_empty()
        || node.starts_with('-')
        || node.contains(|letter: char| letter.is_whitespace() || letter.is_control())
    {
        return Err(Error::new(ErrorKind::Host, doing()).because("it is not a host name"));
    }
    let (known, with, said) = ask("ssh", &["-G", "--", node])?;
    if !known {
        return Err(Error::new(ErrorKind::Host, doing())
            .because(said.lines().last().unwrap_or("`ssh -G` failed").trim())
            .hint(format!("ssh -G {node}   # shows what is wrong with your configuration")));
    }
    let (_, without, _) = ask("ssh", &["-F", "/dev/null", "-G", "--", node])?;
    Ok(Resolved::of_texts(&with, &without))
}

/// The socket of a connection to this node that the user keeps open with a `ControlPath` of their own; `None` when there
/// is none that answers.
pub(super) fn users_master(target: &SshTarget, resolved: &Resolved) -> Result<Option<PathBuf>> {
    let Some(path) = resolved.value("controlpath").filter(|path| *path != "none" && path.starts_with('/')) else {
        return Ok(None);
    };
    // It must be a connection as the user that the spec asks for.
    if target.user.as_deref().is_some_and(|user| resolved.value("user") != Some(user)) {
        return Ok(None);
    }
    let (answers, _, _) = ask("ssh", &["-O", "check", "-S", path, "--", target.node.as_str()])?;
    Ok(answers.then(|| PathBuf::from(path)))
}

/// Whether the user's or the system's known_hosts files hold a key of this machine.
pub(super) fn is_known_to_user(resolved: &Resolved, address: &str, port: u16) -> Result<bool> {
    let name = match resolved.value("hostkeyalias").filter(|alias| *alias != "none") {
        Some(alias) => alias.to_owned(),
        None if port == 22 => address.to_owned(),
        None => format!("[{address}]:{port}"),
    };
    for key in ["userknownhostsfile", "globalknownhostsfile"] {
        for file in resolved.value(key).unwrap_or_default().split_whitespace() {
            if Path::new(file).is_file() && !known_lines(Path::new(file), &name)?.is_empty() {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// The known_hosts lines for this name, hashed names included.
fn known_lines(file: &Path, name: &str) -> Result<Vec<String>> {
    let (_, found, _) = ask("ssh-keygen", &[OsStr::new("-F"), OsStr::new(name), OsStr::new("-f"), file.as_os_str()])?;
    Ok(found.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect())
}

/// The fingerprint of the key of this name in a known_hosts file, as `ssh-keygen -l` prints it.
pub(super) fn fingerprint(file: &Path, name: &str) -> Option<String> {
    let arguments = [OsStr::new("-l"), OsStr::new("-F"), OsStr::new(name), OsStr::new("-f"), file.as_os_str()];
    let (_, found, _) = ask("ssh-keygen", &arguments).ok()?;
    let line = found.lines().find(|line| !line.starts_with('#'))?;
    Some(line.split_whitespace().skip(1).collect::<Vec<_>>().join(" "))
}
