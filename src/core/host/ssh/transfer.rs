//! Copies files and folders to a host and back: one tar stream over one session, put in place by a rename.
//!
//! For an upload both ends use the system's `tar`, which unpacks into a temporary folder beside the goal, so that a cut
//! stream leaves nothing incomplete under the final name. For a download the host is not trusted: [`super::unpack`]
//! checks what it sends. An existing folder is merged into, as `cp -r` does; in neither direction is anything written
//! through a link.

use std::ffi::OsStr;
use std::io::Read;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::sync::mpsc;

use super::contents::Contents;
use super::path::{ABSENT, HostPath};
use super::place::{Place, move_to};
use super::stream::{Ended, StreamHost, last_of};
use super::unpack::{LeftOut, Refusal, UnpackLimits, unpack};
use crate::error::{Doing as _, Error, ErrorKind, Result, Status};
use crate::util::child;
use crate::util::text::quoted;

/// The result of a copy from a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Copied {
    /// Bytes of the files' content.
    pub bytes: u64,
    /// Entries that were sent but not kept.
    pub left_out: LeftOut,
}

impl Copied {
    /// Counts another copy as part of this one.
    pub fn add(&mut self, other: Self) {
        let LeftOut { named, count } = other.left_out;
        self.bytes += other.bytes;
        self.left_out.named.extend(named);
        self.left_out.count += count;
    }
}

/// How many pieces of a stream may wait to be unpacked.
const PIECES: usize = 8;

/// Unpacks a tar stream from its input and moves it into place. No link is followed except the goal itself, which was
/// named.
const RECEIVE: &str = r#"
set -eu
case $goal in */) into=yes; goal=${goal%/} ;; *) into=no ;; esac
[ -n "$goal" ] || goal=/
[ "$count" -gt 1 ] && into=yes
if [ -d "$goal" ]; then into=yes; elif [ $into = yes ]; then echo "$goal is not a folder there" >&2; exit 1; fi
if [ $into = yes ]; then folder=$goal; else folder=$(dirname -- "$goal"); fi
[ -d "$folder" ] || { echo "$folder is not a folder there" >&2; exit 1; }
land=$(mktemp -d "$folder/.gpucl-XXXXXX")
trap 'rm -rf -- "$land"' EXIT
trap 'exit 1' HUP INT TERM
tar -xpf - -C "$land"
# Each runs in a subshell, so that the recursion does not change its caller's variables.
look() (
    if [ -L "$2" ]; then echo "$2 is a link there; nothing was copied" >&2; exit 1; fi
    if [ -d "$1" ] && [ ! -L "$1" ] && [ -d "$2" ]; then
        for from in "$1"/* "$1"/.[!.]* "$1"/..?*; do
            [ -e "$from" ] || [ -L "$from" ] || continue
            look "$from" "$2/${from##*/}"
        done
    elif [ -d "$2" ]; then
        echo "$2 is a folder there; nothing was copied" >&2; exit 1
    fi
)
merge() (
    if [ -d "$1" ] && [ ! -L "$1" ] && [ -d "$2" ] && [ ! -L "$2" ]; then
        for from in "$1"/* "$1"/.[!.]* "$1"/..?*; do
            [ -e "$from" ] || [ -L "$from" ] || continue
            merge "$from" "$2/${from##*/}"
        done
    else
        # `mv` onto a link would follow it.
        if [ -L "$2" ]; then rm -f -- "$2"; fi
        mv -f -- "$1" "$2"
    fi
)
for step in look merge; do
    for from in "$land"/* "$land"/.[!.]* "$land"/..?*; do
        [ -e "$from" ] || [ -L "$from" ] || continue
        if [ $into = yes ]; then to=$folder/${from##*/}; else to=$goal; fi
        $step "$from" "$to"
    done
done
"#;

/// Writes one file or folder as a tar stream; exits with [`ABSENT`] when there is none. A file with several hard links is sent under each name, where `tar` can
/// do so.
const SEND: &str = r#"
set -eu
[ -e "$folder/$name" ] || [ -L "$folder/$name" ] || { echo "$source does not exist there" >&2; exit 3; }
twins=
if tar --help 2>/dev/null | grep -q -e --hard-dereference; then twins=--hard-dereference; fi
exec tar -cf - $twins -C "$folder" -- "$name"
"#;

/// Copies local files and folders to a path on a host, or into it when it is a folder or ends with `/`. Returns the
/// bytes of files that were sent.
///
/// # Errors
/// When a source does not exist, the host cannot be written, or the connection is lost. No partial copy is left then.
pub async fn upload(machine: &dyn StreamHost, sources: &[PathBuf], goal: HostPath<'_>) -> Result<u64> {
    let doing = || format!("copy to {}:{}", machine.machine(), goal.path);
    let mut tar = child::async_command("tar");
    tar.args(["-cf", "-"]);
    for source in sources {
        // `.` and `..` have no name of their own; a link is copied as a link.
        let source = match source.file_name() {
            Some(_) => source.clone(),
            None => fs_err::canonicalize(source).doing(ErrorKind::NotFound, doing)?,
        };
        fs_err::symlink_metadata(&source).doing(ErrorKind::NotFound, doing)?;
        let above = source.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let whole = fs_err::canonicalize(above).doing(ErrorKind::NotFound, doing)?;
        let Some(name) = source.file_name() else {
            return Err(Error::new(ErrorKind::Usage, doing()).because(format!("{} has no name", source.display())));
        };
        tar.arg("-C").arg(whole).arg(Path::new("./").join(name));
    }
    tar.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut tar = tar.spawn().doing(ErrorKind::Host, || "run `tar`".to_owned())?;
    let (Some(from), Some(mut tar_said)) = (tar.stdout.take(), tar.stderr.take()) else {
        return Err(Error::new(ErrorKind::Internal, doing()).because("its pipes are missing"));
    };
    let is_folder = sources.len() > 1 || goal.path.ends_with('/');
    let enter = match goal.within {
        Some(_) => goal.enter(true, is_folder),
        None => format!("goal={}\n", quoted(goal.path)),
    };
    let program = format!("{enter}count={}\n{RECEIVE}", sources.len());
    let (into, input) = mpsc::channel(PIECES);
    let (out, mut ignored) = mpsc::channel(1);
    let drain = async move { while ignored.recv().await.is_some() {} };
    let (sent, local_said, ended, ()) = tokio::join!(
        pass(from, into),
        last_of(&mut tar_said),
        machine.run(program.as_bytes(), goal, input, out),
        drain
    );
    let packed = tar.wait().await.doing(ErrorKind::Host, doing)?;
    judge(machine, doing(), &ended?)?;
    if !packed.success() {
        return Err(Error::new(ErrorKind::Host, doing()).because(last_line(&local_said, "tar failed on this machine")));
    }
    Ok(sent)
}

/// Copies a file or folder of a host to a local path, or into it when it is a folder or ends with `/`.
///
/// The result is that one entry or nothing: the host is not trusted. Setuid, setgid and sticky bits are dropped; links
/// that lead out of the copy, and anything that is not a file, folder or link, are left out; no local link is followed
/// except one in the goal's name.
///
/// # Errors
/// When the source does not exist, this machine cannot be written, the host sends something else or too much, or the
/// connection is lost. Nothing is left then.
pub async fn download(machine: &dyn StreamHost, source: HostPath<'_>, goal: &Path) -> Result<Copied> {
    let doing = || format!("copy {}:{}", machine.machine(), source.path);
    let trimmed = source.path.trim_end_matches('/');
    let (above, name) = trimmed.rsplit_once('/').unwrap_or((".", trimmed));
    if matches!(name, "" | "." | "..") {
        return Err(Error::new(ErrorKind::Usage, doing())
            .because("it has no name that the copy could have here")
            .hint("name a file or a folder in it"));
    }
    let above = if above.is_empty() { "/" } else { above };
    let place = Place::of(goal, OsStr::new(name));
    let is_no_folder = || format!("{} is not a folder", place.folder.display());
    if !place.folder.is_dir() {
        return Err(Error::new(ErrorKind::NotFound, doing()).because(is_no_folder()));
    }
    // `tempdir` makes it accessible to this user only.
    let land = tempfile::Builder::new().prefix(".gpucl-").tempdir_in(&place.folder).doing(ErrorKind::Host, doing)?;
    let landing = fs_err::File::open(land.path()).doing(ErrorKind::Host, doing)?;
    let room = UnpackLimits::of(&landing).doing(ErrorKind::Host, doing)?;
    let (enter, above) = match source.within {
        Some(_) => (HostPath { path: trimmed, ..source }.enter(false, false), "."),
        None => (String::new(), above),
    };
    let source_word = quoted(source.path);
    let program = format!("{enter}source={source_word}\nfolder={}\nname={}\n{SEND}", quoted(above), quoted(name));
    let (pieces, arriving) = mpsc::channel(PIECES);
    let into = landing.file().try_clone().doing(ErrorKind::Host, doing)?;
    let entry = name.to_owned();
    let mut unpacking = tokio::task::spawn_blocking(move || {
        let mut arriving = Arriving::new(arriving);
        let unpacked = unpack(&mut arriving, into.as_fd(), OsStr::new(&entry), room);
        unpacked.map(|left_out| Copied { bytes: arriving.contents.bytes(), left_out })
    });
    let (_, nothing) = mpsc::channel(1);
    let talk = machine.run(program.as_bytes(), source, nothing, pieces);
    tokio::pin!(talk);
    let (unpacked, ended) = tokio::select! {
        unpacked = &mut unpacking => match unpacked {
            // Do not wait for the rest of the stream.
            Ok(Err(Refusal::Unwanted(why))) => return Err(refused(doing(), why, name)),
            unpacked => (unpacked, talk.await?),
        },
        talked = &mut talk => (unpacking.await, talked?),
    };
    let copied = match unpacked.doing(ErrorKind::Internal, doing)? {
        Err(Refusal::Unwanted(why)) => return Err(refused(doing(), why, name)),
        // The host's own error explains a cut stream, if there is one.
        Err(Refusal::Broken(why)) => {
            judge(machine, doing(), &ended)?;
            return Err(Error::new(ErrorKind::Host, doing()).because(why));
        }
        Ok(copied) => {
            judge(machine, doing(), &ended)?;
            copied
        }
    };
    let folder = fs_err::File::open(&place.folder).doing(ErrorKind::Host, doing)?;
    let shown = place.shown();
    move_to(landing.as_fd(), OsStr::new(name), folder.as_fd(), &place.name, &shown).doing(ErrorKind::Host, doing)?;
    Ok(copied)
}

fn judge(machine: &dyn StreamHost, doing: String, ended: &Ended) -> Result<()> {
    let kind = if ended.code == Some(ABSENT) { ErrorKind::NotFound } else { ErrorKind::Host };
    let error = || Error::new(kind, doing);
    match ended.code {
        Some(0) => Ok(()),
        Some(code) => {
            let error = error().because(last_line(&ended.said, &format!("it failed there with exit code {code}")));
            Err(match machine.account().filter(|_| ended.said.contains("Permission denied")) {
                Some(user) => error.because(format!("as the user {user}")).hint("use `--root` to do it as root"),
                None => error,
            })
        }
        None => Err(error().status(Status::Temporary).because("the connection to the host broke")),
    }
}

/// The last non-empty line.
pub(in crate::host) fn last_line(said: &str, otherwise: &str) -> String {
    said.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or(otherwise).to_owned()
}

/// The error for a refused stream.
fn refused(doing: String, why: String, name: &str) -> Error {
    let is_link = why.contains("it is a link that leads out of the copy");
    let error = Error::new(ErrorKind::Host, doing).because(why).because("nothing was written here");
    if is_link { error.hint(format!("copy the target of the link `{name}` instead")) } else { error }
}

/// A blocking reader of the pieces of a stream.
pub(in crate::host) struct Arriving {
    pieces: mpsc::Receiver<Vec<u8>>,
    piece: Vec<u8>,
    read: usize,
    contents: Contents,
}

impl Arriving {
    /// Reads these pieces; blocks while none is there.
    pub(in crate::host) fn new(pieces: mpsc::Receiver<Vec<u8>>) -> Self {
        Self { pieces, piece: Vec::new(), read: 0, contents: Contents::default() }
    }
}

impl Read for Arriving {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if self.read == self.piece.len() {
            match self.pieces.blocking_recv() {
                Some(piece) => {
                    self.contents.take(&piece);
                    (self.piece, self.read) = (piece, 0);
                }
                None => return Ok(0),
            }
        }
        let length = into.len().min(self.piece.len() - self.read);
        into[..length].copy_from_slice(&self.piece[self.read..self.read + length]);
        self.read += length;
        Ok(length)
    }
}

/// Passes everything on; a receiver that stops reading reports it by its exit code. Returns the number of bytes
/// of files that the tar stream carries.
async fn pass(mut from: impl AsyncRead + Unpin, into: mpsc::Sender<Vec<u8>>) -> u64 {
    let mut contents = Contents::default();
    let mut buffer = vec![0_u8; 128 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if into.send(buffer[..length].to_vec()).await.is_err() {
            break;
        }
        contents.take(&buffer[..length]);
    }
    contents.bytes()
}
