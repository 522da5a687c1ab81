//! Fuzz tests: archives sent by a host, and SSH settings from specs and clouds.

use std::ffi::OsStr;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use super::SshTarget;
use super::config::{Block, Files, HostEntry, Resolved, Trust, config_text, known_hosts_text};
use super::host_keys::HostKeys;
use super::place::move_to;
use super::unpack::{UnpackLimits, unpack, unpack_all};
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
const LIMITS: UnpackLimits = UnpackLimits { bytes: 256 * 1024, entries: 64 };

#[test]
fn fuzz_archives_of_hosts() {
    let folder = tempfile::tempdir().unwrap();
    let land = folder.path().join("land");
    let target =
        Target { name: "archive", form: Form::Blocks, seeds: archives(), words: Vec::new(), short: 250, share: 20 };
    target.run(|input| {
        fs_err::create_dir(&land).map_err(|error| error.to_string())?;
        let opened = fs_err::File::open(&land).map_err(|error| error.to_string())?;
        let unpacked = unpack(input, opened.as_fd(), OsStr::new("results"), LIMITS);
        let outside = fs_err::read_dir(folder.path()).map_err(|error| error.to_string())?.count();
        let looked = look(&land, &land.join("results"), 0);
        let cleared = fs_err::remove_dir_all(&land).map_err(|error| format!("what landed cannot be removed: {error}"));
        if outside != 1 {
            return Err(format!("{outside} entries are outside after {unpacked:?}"));
        }
        looked.and(cleared)
    });
}

/// All below a folder: modes, times, numbers of links, contents.
fn fingerprint(folder: &Path, into: &mut Vec<String>) -> std::io::Result<()> {
    for entry in fs_err::read_dir(folder)? {
        let path = entry?.path();
        let found = fs_err::symlink_metadata(&path)?;
        let content = if found.is_file() { fs_err::read(&path)? } else { Vec::new() };
        let links = if found.is_dir() { 0 } else { found.nlink() };
        into.push(format!("{} {:o} {:?} {links} {content:?}", path.display(), found.mode(), found.modified()?));
        if found.is_dir() {
            fingerprint(&path, into)?;
        }
    }
    into.sort();
    Ok(())
}

const KINDS: &[tar::EntryType] = {
    use tar::EntryType::{Directory, Fifo, Link, Regular, Symlink};
    &[Directory, Regular, Symlink, Symlink, Directory, Regular, Symlink, Link, Fifo]
};
const PATHS: &[&str] = &[
    "results",
    "results/a",
    "results/s",
    "results/t",
    "results/a/b",
    "results/a/s",
    "results/a/b/s",
    "results/a/b/t",
    "results/s/x",
    "results/t/id",
    "results/a/b/t/id",
    "results/a/../../x",
    "/x",
    "s",
    "results/./t/",
];
const TARGETS: &[&str] = &[
    "a",
    "s",
    "t",
    "..",
    "../..",
    "../../..",
    "s/../../..",
    "s/../../../home/.ssh",
    "a/../../../home/.ssh",
    "../../../home/.ssh",
    "../s",
    "../t/id",
    "/",
    ".",
    "",
    "b/../s",
];
const MODES: &[u32] = &[0o777, 0o4755, 0, 0o644];

/// An input of these entries: their kinds, paths, targets and modes.
fn spelled(entries: &[[usize; 4]]) -> String {
    let letter = |index: usize, count: usize| ('0'..='z').find(|letter| *letter as usize % count == index).unwrap();
    let counts = [KINDS.len(), PATHS.len(), TARGETS.len(), MODES.len()];
    entries.iter().flat_map(|entry| entry.iter().zip(counts)).map(|(index, count)| letter(*index, count)).collect()
}

/// An archive of an input of which every four letters are an entry.
fn ordered(input: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for letters in input.chunks_exact(4) {
        let pick = |at: usize, count: usize| usize::from(letters[at]) % count;
        let kind = KINDS[pick(0, KINDS.len())];
        let content: &[u8] = if kind == tar::EntryType::Regular { b"new" } else { b"" };
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(MODES[pick(3, MODES.len())]);
        header.set_size(content.len() as u64);
        let (path, target) = (PATHS[pick(1, PATHS.len())], TARGETS[pick(2, TARGETS.len())]);
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
        header.set_cksum();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

#[test]
fn fuzz_orders_of_archives() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs_err::create_dir_all(at("home/.ssh")).unwrap();
    fs_err::write(at("home/.ssh/id"), "id").unwrap();
    let mut before = Vec::new();
    fingerprint(&at("home"), &mut before).unwrap();
    // Folders with links between files, and what got out of another program once, in two orders.
    let seeds = [
        spelled(&[[0, 0, 0, 0], [0, 1, 0, 0], [1, 5, 0, 3], [2, 2, 0, 0], [0, 4, 0, 0], [2, 7, 10, 0], [1, 3, 0, 3]]),
        spelled(&[[0, 0, 0, 0], [0, 1, 0, 0], [0, 4, 0, 0], [2, 7, 7, 0], [2, 6, 4, 0], [0, 7, 0, 0], [1, 10, 0, 3]]),
        spelled(&[[0, 0, 0, 0], [0, 1, 0, 0], [0, 4, 0, 0], [0, 7, 0, 0], [1, 10, 0, 3], [2, 6, 4, 0], [2, 3, 7, 0]]),
    ];
    Target::of_text("archive-orders", &seeds).with_inputs(400, 20).run(|input| {
        let said = |error: std::io::Error| error.to_string();
        let archive = ordered(&input[..input.len().min(80)]);
        for takes_all in [false, true] {
            fs_err::create_dir(at("land")).map_err(said)?;
            // One that is there: a folder of the user's own, with a link that leads out.
            fs_err::create_dir_all(at("there/results/a")).map_err(said)?;
            std::os::unix::fs::symlink(at("home/.ssh"), at("there/results/t")).map_err(said)?;
            let open = |name: &str| fs_err::File::open(at(name)).map_err(said);
            let (land, here, there) = (open("land")?, open(".")?, open("there")?);
            let (name, results) = (OsStr::new("results"), at("land/results"));
            let looked = if takes_all {
                let _ = unpack_all(&*archive, land.as_fd(), LIMITS);
                look(&at("land"), &at("land"), 1)
            } else {
                let unpacked = unpack(&*archive, land.as_fd(), name, LIMITS);
                let looked = look(&at("land"), &results, 0);
                // As it is, or under another name.
                if unpacked.is_err() || move_to(land.as_fd(), name, there.as_fd(), name, &results).is_ok() {
                    looked
                } else {
                    let moved = move_to(land.as_fd(), name, here.as_fd(), OsStr::new("copy"), &results);
                    let again = if at("copy").is_dir() { look(&at("copy"), &at("copy"), 1) } else { Ok(()) };
                    looked.and(moved.map_err(said)).and(again)
                }
            };
            for name in ["land", "there", "copy"] {
                let removed = match fs_err::symlink_metadata(at(name)) {
                    Ok(found) if found.is_dir() => fs_err::remove_dir_all(at(name)),
                    Ok(_) => fs_err::remove_file(at(name)),
                    Err(_) => Ok(()),
                };
                removed.map_err(said)?;
            }
            looked?;
            let mut after = Vec::new();
            fingerprint(&at("home"), &mut after).map_err(said)?;
            demand(after == before, || format!("outside it was {before:?} and is {after:?}"))?;
            let around = fs_err::read_dir(folder.path()).map_err(said)?.count();
            demand(around == 1, || format!("{around} entries are outside"))?;
        }
        Ok(())
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
            "    ForwardAgent no",
            "    ForwardX11 no",
            "    GSSAPIDelegateCredentials no",
        ];
        // `ssh` also ends a line where a terminal would.
        for line in text.split(['\n', '\r']).filter(|line| !line.is_empty()) {
            demand(known.iter().any(|begin| line.starts_with(begin)), || format!("a line of its own: {line:?}"))?;
        }
        if target.faults().is_empty() {
            let lines = known_hosts_text("", &[block], &HostKeys::default());
            demand(lines.trim_end_matches('\n').lines().count() <= 1, || format!("more than a key: {lines:?}"))?;
        }
        Ok(())
    });
}
