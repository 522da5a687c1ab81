//! Fuzz tests: archives sent by a host, and SSH settings from specs and clouds.

use std::ffi::OsStr;
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::SshTarget;
use super::config::{Block, Files, HostEntry, Resolved, Trust, config_text, known_hosts_text};
use super::unpack::{Room, unpack};
use gpucl_fuzz::{Form, Target, demand};

/// Builds an archive such as a host sends.
fn archive(build: impl FnOnce(&mut tar::Builder<Vec<u8>>)) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    build(&mut builder);
    builder.into_inner().unwrap()
}

fn add(builder: &mut tar::Builder<Vec<u8>>, kind: tar::EntryType, name: &str, link: &str, content: &[u8]) {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o755);
    header.set_size(content.len() as u64);
    if kind == tar::EntryType::Symlink {
        builder.append_link(&mut header, name, link).unwrap();
    } else {
        builder.append_data(&mut header, name, content).unwrap();
    }
}

fn archives() -> Vec<Vec<u8>> {
    use tar::EntryType::{Directory, Regular, Symlink};
    let tree = archive(|builder| {
        add(builder, Directory, "results/", "", b"");
        add(builder, Regular, "results/a", "", b"one");
        add(builder, Symlink, "results/l", "b", b"");
        add(builder, Directory, "results/b", "", b"");
        add(builder, Regular, "results/b/c", "", b"two");
        add(builder, Symlink, "results/b/up", "../a", b"");
    });
    let file = archive(|builder| add(builder, Regular, "results", "", b"three"));
    let long = archive(|builder| {
        add(builder, Directory, "results/", "", b"");
        add(builder, Regular, &format!("results/{}", "n".repeat(180)), "", b"four");
    });
    vec![tree, file, long]
}

/// Checks the result: one entry of the name, only files, folders and links that stay within, no setuid or setgid bits.
fn look(folder: &Path, top: &Path, depth: usize) -> Result<(), String> {
    for entry in fs_err::read_dir(folder).map_err(|error| error.to_string())? {
        let path = entry.map_err(|error| error.to_string())?.path();
        let found = fs_err::symlink_metadata(&path).map_err(|error| error.to_string())?;
        let shown = path.display();
        demand(depth > 0 || path == top, || format!("{shown} was not requested"))?;
        if found.is_symlink() {
            let target = fs_err::read_link(&path).map_err(|error| error.to_string())?;
            demand(target.is_relative(), || format!("{shown} leads to {}", target.display()))?;
            // A link that leads to something leads into the copy.
            if let Ok(end) = std::fs::canonicalize(&path) {
                let top = std::fs::canonicalize(top).map_err(|error| error.to_string())?;
                demand(end.starts_with(top), || format!("{shown} leads to {}", end.display()))?;
            }
            continue;
        }
        demand(found.is_dir() || found.is_file(), || format!("{shown} is not a file"))?;
        demand(found.permissions().mode() & 0o7000 == 0, || format!("{shown} has special rights"))?;
        if found.is_dir() {
            look(&path, top, depth + 1)?;
        }
    }
    Ok(())
}

/// The most that may be written.
const ROOM: Room = Room { bytes: 256 * 1024, entries: 64 };

#[test]
fn fuzz_archives_of_hosts() {
    let folder = tempfile::tempdir().unwrap();
    let land = folder.path().join("land");
    let target =
        Target { name: "archive", form: Form::Blocks, seeds: archives(), words: Vec::new(), short: 250, share: 20 };
    target.run(|input| {
        fs_err::create_dir(&land).map_err(|error| error.to_string())?;
        let opened = fs_err::File::open(&land).map_err(|error| error.to_string())?;
        let unpacked = unpack(input, opened.as_fd(), OsStr::new("results"), ROOM);
        let outside = fs_err::read_dir(folder.path()).map_err(|error| error.to_string())?.count();
        let looked = look(&land, &land.join("results"), 0);
        let cleared = fs_err::remove_dir_all(&land).map_err(|error| format!("what landed cannot be removed: {error}"));
        if outside != 1 {
            return Err(format!("{outside} entries are outside after {unpacked:?}"));
        }
        looked.and(cleared)
    });
}

/// The value that `ssh` reads from a line: one word, unquoted.
fn value_of(text: &str) -> Option<String> {
    let Some(inner) = text.strip_prefix('"') else {
        return (!text.contains([' ', '\t', '"', '\'', '#', '\\'])).then(|| text.to_owned());
    };
    let mut value = String::new();
    let mut rest = inner.chars();
    loop {
        match rest.next()? {
            '"' => return rest.next().is_none().then_some(value),
            '\\' => value.push(rest.next()?),
            letter => value.push(letter),
        }
    }
}

#[test]
fn fuzz_ssh_config() {
    let seeds = [
        "10.0.0.7§ada§/home/ada/.ssh/my key§host-0§ssh-ed25519 AAAAC3Nz§/home/ada/.local/state/known_hosts",
        "gpu1.example.org§root§~/.ssh/50%§head§ecdsa-sha2-nistp256 AAAAE2V comment§/x y/known_hosts",
    ];
    let words = ["§", "\nProxyCommand x", "\" ProxyCommand x", "%h", "${HOME}", "\\", "\\\"", "#"];
    Target::of_text("ssh-config", &seeds).with_words(&words).with_inputs(1000, 90).run(|input| {
        let text = String::from_utf8_lossy(input).into_owned();
        let mut parts = text.split('§').map(str::to_owned);
        let mut next = || parts.next().filter(|part| !part.is_empty());
        let target = SshTarget {
            node: next().unwrap_or_default(),
            user: next(),
            port: None,
            identity_file: next().map(Into::into),
            jump: next(),
            relay: None,
            host_key: next(),
            private_address: None,
        };
        let known_hosts = next().unwrap_or_else(|| "/known_hosts".to_owned());
        let entry = HostEntry { names: vec!["host-0".to_owned(), "head".to_owned()], target: target.clone() };
        let block = Block { entry, resolved: Resolved::default(), trust: Trust::Given, users_master: None };
        let Ok(text) = config_text(
            std::slice::from_ref(&block),
            Files {
                config: Path::new("/config"),
                known_hosts: Path::new(&known_hosts),
                runtime: Path::new("/run/gpucl"),
            },
        ) else {
            return Ok(());
        };
        let value = |key: &str| -> Result<Option<String>, String> {
            let begin = format!("    {key} ");
            let mut lines = text.lines().filter_map(|line| line.strip_prefix(&begin));
            let Some(found) = lines.next() else { return Ok(None) };
            demand(lines.next().is_none(), || format!("{key} is there twice"))?;
            value_of(found).map(Some).ok_or_else(|| format!("{key} is not one value: {found}"))
        };
        let file = target.identity_file.as_ref().map(|file| file.display().to_string().replace('%', "%%"));
        demand(value("HostName")? == Some(target.node.replace('%', "%%")), || format!("HostName in {text}"))?;
        demand(value("User")? == target.user, || format!("User in {text}"))?;
        demand(value("IdentityFile")? == file, || format!("IdentityFile in {text}"))?;
        demand(value("ProxyJump")? == target.jump.as_ref().map(|jump| jump.replace('%', "%%")), || text.clone())?;
        // Each line is one that we know.
        let known = [
            "Host ",
            "Match all",
            "Include ",
            "#",
            "    HostName ",
            "    Port ",
            "    User ",
            "    IdentityFile ",
            "    IdentitiesOnly ",
            "    ProxyJump ",
            "    HostKeyAlias ",
            "    UserKnownHostsFile ",
            "    GlobalKnownHostsFile none",
            "    StrictHostKeyChecking yes",
            "    HashKnownHosts no",
            "    UpdateHostKeys no",
            "    ConnectTimeout 10",
            "    ServerAliveInterval ",
            "    ServerAliveCountMax ",
            "    ControlMaster no",
            "    ControlPath none",
            "    RemoteCommand none",
            "    RequestTTY auto",
            "    PermitLocalCommand no",
        ];
        // `ssh` also ends a line where a terminal would.
        for line in text.split(['\n', '\r']).filter(|line| !line.is_empty()) {
            demand(known.iter().any(|begin| line.starts_with(begin)), || format!("a line of its own: {line:?}"))?;
        }
        if target.faults().is_empty() {
            let lines = known_hosts_text("", &[block]);
            demand(lines.trim_end_matches('\n').lines().count() <= 1, || format!("more than a key: {lines:?}"))?;
        }
        Ok(())
    });
}
