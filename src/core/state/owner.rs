//! The owner: generated once per user, and bound to the machine where that happened.
//!
//! Its file holds the eight characters, and in the second line the machine. Two machines with one owner would take
//! each other's clusters for their own, so a copy on another machine (a synchronized folder, a machine image) is
//! detected, and nothing is created or deleted with it. A network home, which several machines share, is no copy.

use std::io::{ErrorKind as Io, Write as _};
use std::path::Path;

use super::Paths;
use super::lock::unwritable;
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::name::Owner;
use crate::util::{digest, fs, random};

/// The beginning of the file's second line; without it the file has the old format, and is converted once.
const FORM: &str = "gpucl-owner 2";
/// The file with Linux's unique machine id.
const MACHINE_ID: &str = "/etc/machine-id";
/// The `statfs` magic numbers of file systems that several machines can share: NFS, SMB (three), Lustre, GPFS, Ceph,
/// AFS (two), 9p, BeeGFS, PanFS, GFS2, OCFS2, OrangeFS, Coda, and FUSE, which implements many others.
const SHARED: [u64; 17] = [
    0x6969,
    0x517b,
    0xff53_4d42,
    0xfe53_4d42,
    0x0bd0_0bd0,
    0x4750_4653,
    0x00c3_6400,
    0x5346_414f,
    0x6b41_4653,
    0x0102_1997,
    0x1983_0326,
    0xaad7_aaea,
    0x0116_1970,
    0x7461_636f,
    0x2003_0528,
    0x7375_7245,
    0x6573_5546,
];

/// The machine that an owner is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Binding {
    /// A digest of the machine's id; `-` if it has none.
    machine: String,
    /// The id in the state folder; `-` if there is none yet.
    state: String,
}

impl Binding {
    /// This machine and this state.
    fn here(paths: &Paths, machine_id: &Path) -> Self {
        let read = |path: &Path| fs_err::read_to_string(path).unwrap_or_default().trim().to_owned();
        // The id itself is private: store a digest that serves only this purpose.
        let machine = match read(machine_id) {
            id if id.len() < 32 => "-".to_owned(),
            id => digest::short(format!("owner of gpucl: {id}").as_bytes()),
        };
        let state = match read(&state_id(paths)) {
            id if id.is_empty() => "-".to_owned(),
            id => id,
        };
        Self { machine, state }
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix(FORM)?.split_whitespace();
        let mut word = |name: &str| Some(words.next()?.strip_prefix(name)?.to_owned());
        Some(Self { machine: word("machine=")?, state: word("state=")? })
    }

    /// Whether both are the same machine, or share the state over a network.
    fn is(&self, here: &Self, is_shared: impl FnOnce() -> bool) -> bool {
        let same_state = self.state != "-" && self.state == here.state;
        match (self.machine.as_str(), here.machine.as_str()) {
            ("-", _) | (_, "-") => same_state,
            (there, here) => there == here || (same_state && is_shared()),
        }
    }
}

fn state_id(paths: &Paths) -> std::path::PathBuf {
    paths.state.join("machine")
}

/// The content of the file.
struct Written {
    owner: Owner,
    /// `None` in the old format.
    binding: Option<Binding>,
}

/// Reads the owner, or generates one. Fails if it belongs to another machine.
pub fn owner(paths: &Paths) -> Result<Owner> {
    owner_at(paths, Path::new(MACHINE_ID))
}

fn owner_at(paths: &Paths, machine_id: &Path) -> Result<Owner> {
    // If two first commands run concurrently, one creates the file and the other finds it.
    for _ in 0..2 {
        if let Some(written) = read(paths)? {
            match written.binding {
                Some(_) => check(paths, machine_id)?,
                None => write(paths, machine_id, &written.owner, Put::Replace)?,
            }
            return Ok(written.owner);
        }
        match write(paths, machine_id, &fresh()?, Put::IfNone) {
            Err(error) if error.kind() == ErrorKind::Locked => {}
            written => {
                written?;
                if let Some(written) = read(paths)? {
                    return Ok(written.owner);
                }
            }
        }
    }
    Err(Error::new(ErrorKind::State, "make an owner").because("its file keeps appearing and disappearing"))
}

/// Reads the owner, of whichever machine; `None` if there is none yet. Read-only.
pub fn known_owner(paths: &Paths) -> Result<Option<Owner>> {
    Ok(read(paths)?.map(|written| written.owner))
}

/// Fails if the owner belongs to another machine. Read-only.
pub fn check_here(paths: &Paths) -> Result<()> {
    check(paths, Path::new(MACHINE_ID))
}

/// Binds the existing owner to this machine.
pub fn move_owner(paths: &Paths) -> Result<Owner> {
    let Some(written) = read(paths)? else {
        return Err(Error::new(ErrorKind::NotFound, "bring the owner to this machine")
            .because(format!("there is none in {}", paths.owner().display()))
            .hint("gpucl owner new"));
    };
    write(paths, Path::new(MACHINE_ID), &written.owner, Put::Replace)?;
    Ok(written.owner)
}

/// Generates a new owner for this machine, replacing any existing one.
pub fn new_owner(paths: &Paths) -> Result<Owner> {
    let owner = fresh()?;
    write(paths, Path::new(MACHINE_ID), &owner, Put::Replace)?;
    Ok(owner)
}

fn fresh() -> Result<Owner> {
    random::letters(8)?.parse().doing(ErrorKind::Internal, || "make an owner".to_owned())
}

fn check(paths: &Paths, machine_id: &Path) -> Result<()> {
    let Some(binding) = read(paths)?.and_then(|written| written.binding) else { return Ok(()) };
    let here = Binding::here(paths, machine_id);
    if binding.is(&here, || is_shared(&paths.config)) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::State, format!("use the owner in {}", paths.owner().display()))
        .because("it belongs to another machine: a synchronized folder or a machine image has copied the file here")
        .because("two machines with one owner delete each other's clusters, so nothing was created, deleted or changed")
        .hint("gpucl owner new    # this machine gets an owner of its own; the other keeps what it has")
        .hint("gpucl owner move   # the other machine is gone, or is this one: its clusters are managed from here"))
}

/// Whether several machines can share this folder.
fn is_shared(folder: &Path) -> bool {
    // The numbers have 32 bits, and the field's type differs from machine to machine.
    rustix::fs::statfs(folder).is_ok_and(|stat| SHARED.contains(&(stat.f_type as u64 & 0xffff_ffff)))
}

fn read(paths: &Paths) -> Result<Option<Written>> {
    let path = paths.owner();
    let doing = || format!("read who owns the clusters from {}", path.display());
    let text = match fs::read_text_within(&path, fs::RECORD_LIMIT) {
        Ok(text) => text,
        Err(error) if error.kind() == Io::NotFound => return Ok(None),
        Err(error) => return Err(Error::new(ErrorKind::State, doing()).caused_by(&error)),
    };
    let mut lines = text.trim().lines();
    let owner = lines.next().unwrap_or_default().trim().parse().map_err(|error| {
        Error::new(ErrorKind::State, doing())
            .caused_by(&error)
            .hint("put back the eight characters; without them gpucl cannot recognize its own resources")
    })?;
    let binding = lines.next().map(|line| {
        Binding::parse(line).ok_or_else(|| {
            Error::new(ErrorKind::State, doing())
                .because(format!("its second line is `{line}`, which this version of gpucl does not know"))
                .hint("use a newer gpucl, or remove that line to bind the owner to this machine")
        })
    });
    Ok(Some(Written { owner, binding: binding.transpose()? }))
}

/// Whether to replace an existing file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Put {
    Replace,
    IfNone,
}

/// Writes the owner's file for this machine atomically. Fails with `Locked` if there is one and `put` keeps it.
fn write(paths: &Paths, machine_id: &Path, owner: &Owner, put: Put) -> Result<()> {
    let id = random::letters(12)?;
    let name_state = || -> std::io::Result<()> {
        fs::create_private_dir(&paths.state)?;
        put_file(&paths.state, &state_id(paths), &format!("{id}\n"), Put::IfNone)
    };
    match name_state() {
        Err(error) if error.kind() != Io::AlreadyExists => {
            let doing = "write down which machine this is".to_owned();
            return Err(unwritable(doing, &paths.state, &error));
        }
        Ok(()) | Err(_) => {}
    }
    let write = || -> std::io::Result<()> {
        let Binding { machine, state } = Binding::here(paths, machine_id);
        fs::create_private_dir(&paths.config)?;
        let text = format!("{owner}\n{FORM} machine={machine} state={state}\n");
        put_file(&paths.config, &paths.owner(), &text, put)
    };
    write().map_err(|error| {
        let kind = if error.kind() == Io::AlreadyExists { ErrorKind::Locked } else { ErrorKind::State };
        Error::new(kind, format!("write down who owns the clusters in {}", paths.owner().display()))
            .caused_by(&error)
            .hint(format!("make {} writable, or set XDG_CONFIG_HOME to a folder that is", paths.config.display()))
    })
}

fn put_file(folder: &Path, path: &Path, text: &str, put: Put) -> std::io::Result<()> {
    let mut file = tempfile::Builder::new().prefix(".gpucl-").tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    match put {
        Put::Replace => file.persist(path),
        Put::IfNone => file.persist_noclobber(path),
    }
    .map_err(|error| error.error)?;
    fs::sync_folder(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(at: &Path) -> Paths {
        let at = |name: &str| at.join(name);
        Paths { config: at("config"), state: at("state"), data: at("data"), cache: at("cache"), runtime: at("run") }
    }

    fn copy(from: &Path, to: &Path) {
        fs_err::create_dir_all(to.parent().unwrap()).unwrap();
        fs_err::copy(from, to).unwrap();
    }

    /// Writes a file in the old format, which is bound to no machine.
    fn plain(paths: &Paths) {
        fs_err::create_dir_all(&paths.config).unwrap();
        fs_err::write(paths.owner(), "abcd1234\n").unwrap();
    }

    #[test]
    fn an_owner_is_made_once_and_belongs_to_this_machine() {
        let home = tempfile::tempdir().unwrap();
        let paths = paths(home.path());
        let made = owner(&paths).unwrap();
        assert_eq!(owner(&paths).unwrap(), made);
        assert_eq!(known_owner(&paths).unwrap(), Some(made.clone()));
        // With a machine id, losing the state does not make it another machine.
        if Binding::here(&paths, Path::new(MACHINE_ID)).machine != "-" {
            fs_err::remove_dir_all(&paths.state).unwrap();
            assert_eq!(owner(&paths).unwrap(), made);
        }
    }

    #[test]
    fn a_file_in_the_old_format_is_converted_once() {
        let home = tempfile::tempdir().unwrap();
        let paths = paths(home.path());
        plain(&paths);
        assert_eq!(known_owner(&paths).unwrap().unwrap().as_str(), "abcd1234");
        assert_eq!(fs_err::read_to_string(paths.owner()).unwrap(), "abcd1234\n", "reading changed it");
        assert_eq!(owner(&paths).unwrap().as_str(), "abcd1234");
        let text = fs_err::read_to_string(paths.owner()).unwrap();
        assert!(text.starts_with("abcd1234\ngpucl-owner 2 machine="), "{text}");
    }

    #[test]
    fn a_copy_on_another_machine_is_refused_until_it_is_moved_or_replaced() {
        // A minimal system has no id before its first boot with systemd, so this machine's own id is not used.
        for mine_has_an_id in [true, false] {
            let (mine, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let (mine, other) = (paths(mine.path()), paths(other.path()));
            let id = mine.config.join("machine-id");
            fs_err::create_dir_all(&mine.config).unwrap();
            fs_err::write(&id, if mine_has_an_id { "a".repeat(32) } else { String::new() }).unwrap();
            let made = owner_at(&mine, &id).unwrap();
            check(&mine, &id).unwrap();
            copy(&mine.owner(), &other.owner());
            // The other machine has another id, or none; a machine image also contains the state.
            let id = other.config.join("machine-id");
            for (text, with_state) in [("f".repeat(32), false), ("f".repeat(32), true), (String::new(), false)] {
                fs_err::write(&id, text).unwrap();
                if with_state {
                    copy(&state_id(&mine), &state_id(&other));
                }
                match check(&other, &id) {
                    // Without an id, only the state shows the machine.
                    Ok(()) => assert!(with_state && !mine_has_an_id),
                    Err(error) => {
                        assert!(mine_has_an_id || !with_state, "{error:?}");
                        let names_it = |cause: &String| cause.contains("belongs to another machine");
                        assert!(error.causes().iter().any(names_it), "{error:?}");
                    }
                }
                let _ = fs_err::remove_file(state_id(&other));
            }
            // Without any id the state decides.
            copy(&state_id(&mine), &state_id(&other));
            check(&other, &id).unwrap();
            assert_eq!(move_owner(&other).unwrap(), made);
            check_here(&other).unwrap();
            assert_ne!(new_owner(&other).unwrap(), made);
            check_here(&other).unwrap();
        }
    }

    #[test]
    fn a_home_shared_by_several_machines_is_no_copy() {
        let binding = |machine: &str, state: &str| Binding { machine: machine.to_owned(), state: state.to_owned() };
        let mine = binding("a", "s");
        assert!(mine.is(&binding("b", "s"), || true));
        assert!(!mine.is(&binding("b", "s"), || false), "a machine image");
        assert!(!mine.is(&binding("b", "t"), || true), "a copy in another home");
        assert!(mine.is(&binding("-", "s"), || false) && !mine.is(&binding("-", "-"), || true));
        assert!(!is_shared(Path::new("/proc")));
    }

    #[test]
    fn an_unknown_format_is_an_error() {
        let home = tempfile::tempdir().unwrap();
        let paths = paths(home.path());
        plain(&paths);
        fs_err::write(paths.owner(), "abcd1234\ngpucl-owner 3 x\n").unwrap();
        assert!(owner(&paths).is_err() && known_owner(&paths).is_err());
    }
}
