//! Files and folders to a host and back: one tar stream over one session, landing by a rename.
//!
//! On the way there both ends use the system's `tar`, and a folder of its own beside the goal takes what comes, so that a stream that
//! was cut leaves nothing half under its name. On the way back a host is believed nothing: [`super::unpack`] takes what it sends. A
//! folder that is there already is merged into, as `cp -r` does, and neither way is anything written through a link.

use std::ffi::OsStr;
use std::io::Read;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::process::Command;
use tokio::sync::mpsc;

use super::host::{Channel, SshHost};
use super::place::{Place, move_to};
use super::unpack::{LeftOut, Refusal, Room, unpack};
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::host::{ExecEnd, Host as _};
use crate::util::text::quoted;

/// Told how many bytes have passed so far.
pub type OnBytes<'a> = &'a mut (dyn FnMut(u64) + Send);

/// What came of a copy from a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Copied {
    /// How many bytes passed.
    pub bytes: u64,
    /// What was there and was not taken.
    pub left_out: LeftOut,
}

/// How much of what a program on a host says against a copy is kept: its end.
const SAID: usize = 16 * 1024;
/// How many pieces of a stream wait to be unpacked.
const PIECES: usize = 8;

/// Takes a tar stream on its input, and lets it land. A link in the way is not followed, but for the goal itself, which was named.
const RECEIVE: &str = r#"
set -eu
case $goal in */) into=yes; goal=${goal%/} ;; *) into=no ;; esac
[ -n "$goal" ] || goal=/
[ "$count" -gt 1 ] && into=yes
if [ -d "$goal" ]; then into=yes; elif [ $into = yes ]; then echo "$goal is no folder there" >&2; exit 1; fi
if [ $into = yes ]; then folder=$goal; else folder=$(dirname -- "$goal"); fi
[ -d "$folder" ] || { echo "$folder is no folder there" >&2; exit 1; }
land=$(mktemp -d "$folder/.gpucl-XXXXXX")
trap 'rm -rf -- "$land"' EXIT
trap 'exit 1' HUP INT TERM
tar -xpf - -C "$land"
# Each is a shell of its own, so that a folder within a folder does not change what its caller works on.
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
        # Onto a link, `mv` would go on to where it leads.
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

/// Gives one file or folder as a tar stream on its output. A file with several names in it is sent under each, where `tar` can.
const SEND: &str = r#"
set -eu
[ -e "$folder/$name" ] || [ -L "$folder/$name" ] || { echo "$source is not there" >&2; exit 1; }
twins=
if tar --help 2>/dev/null | grep -q -e --hard-dereference; then twins=--hard-dereference; fi
exec tar -cf - $twins -C "$folder" -- "$name"
"#;

impl SshHost {
    /// Copies files and folders of this machine to a path on the host; one that ends with `/` or is a folder takes them in.
    ///
    /// # Errors
    /// When one is not there, when the host cannot be written, or when the connection is lost. Nothing half is left then.
    pub async fn upload(&self, sources: &[PathBuf], goal: &str, is_root: bool, on_bytes: OnBytes<'_>) -> Result<u64> {
        let doing = || format!("copy to {}:{goal}", self.name());
        let mut tar = Command::new("tar");
        tar.args(["-cf", "-"]);
        for source in sources {
            // `.` and `..` have no name of their own; a link is copied as the link that it is.
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
        let (Some(mut from), Some(mut tar_said)) = (tar.stdout.take(), tar.stderr.take()) else {
            return Err(Error::new(ErrorKind::Internal, doing()).because("its pipes are missing"));
        };
        let program = format!("goal={}\ncount={}\n{RECEIVE}", quoted(goal), sources.len());
        let mut channel = self.begin_with_data(&program, is_root).await?;
        let (Some(mut to), Some(mut out), Some(mut err)) =
            (channel.child.stdin().take(), channel.child.stdout().take(), channel.child.stderr().take())
        else {
            return Err(Error::new(ErrorKind::Internal, doing()).because("its pipes are missing"));
        };
        let send = async {
            let sent = match to.write_all(program.as_bytes()).await {
                Ok(()) => pass(&mut from, &mut to, on_bytes).await,
                Err(_) => Passed::default(),
            };
            // Without its end the host would take a cut stream for a whole one; tar there tells them apart.
            drop((to, from));
            sent
        };
        let (sent, local_said, said, _) =
            tokio::join!(send, last_of(&mut tar_said), last_of(&mut err), last_of(&mut out));
        let packed = tar.wait().await.doing(ErrorKind::Host, doing)?;
        let end = self.end(channel).await;
        self.judge(doing(), end, &said)?;
        if !packed.success() {
            return Err(
                Error::new(ErrorKind::Host, doing()).because(last_line(&local_said, "tar failed on this machine"))
            );
        }
        Ok(sent.bytes)
    }

    /// Copies a file or folder of the host to a path on this machine; one that ends with `/` or is a folder takes it in.
    ///
    /// What comes is that one entry or nothing: the host is not believed what it sends. Its rights are less those to become somebody
    /// else, links out of it and what is no file, folder or link are left out, and no link here is followed but one in the goal's name.
    ///
    /// # Errors
    /// When it is not there, when this machine cannot be written, when the host sends what was not asked for or does not fit, or when
    /// the connection is lost. Nothing is left then.
    pub async fn download(&self, source: &str, goal: &Path, is_root: bool, on_bytes: OnBytes<'_>) -> Result<Copied> {
        let doing = || format!("copy {}:{source}", self.name());
        let trimmed = source.trim_end_matches('/');
        let (above, name) = trimmed.rsplit_once('/').unwrap_or((".", trimmed));
        if matches!(name, "" | "." | "..") {
            return Err(Error::new(ErrorKind::Usage, doing())
                .because("it has no name of its own that it could have here")
                .hint("name a file or a folder in it"));
        }
        let above = if above.is_empty() { "/" } else { above };
        let place = Place::of(goal, OsStr::new(name));
        let is_no_folder = || format!("{} is no folder", place.folder.display());
        if !place.folder.is_dir() {
            return Err(Error::new(ErrorKind::NotFound, doing()).because(is_no_folder()));
        }
        // Only its user may enter it.
        let land =
            tempfile::Builder::new().prefix(".gpucl-").tempdir_in(&place.folder).doing(ErrorKind::Host, doing)?;
        let landing = fs_err::File::open(land.path()).doing(ErrorKind::Host, doing)?;
        let room = Room::of(&landing).doing(ErrorKind::Host, doing)?;
        let program = format!("source={}\nfolder={}\nname={}\n{SEND}", quoted(source), quoted(above), quoted(name));
        let mut channel = self.begin_with_data(&program, is_root).await?;
        let (Some(mut feed), Some(mut out), Some(mut err)) =
            (channel.child.stdin().take(), channel.child.stdout().take(), channel.child.stderr().take())
        else {
            return Err(Error::new(ErrorKind::Internal, doing()).because("its pipes are missing"));
        };
        let (pieces, arriving) = mpsc::channel(PIECES);
        let into = landing.file().try_clone().doing(ErrorKind::Host, doing)?;
        let entry = name.to_owned();
        let mut unpacking = tokio::task::spawn_blocking(move || {
            unpack(Arriving { pieces: arriving, piece: Vec::new(), read: 0 }, into.as_fd(), OsStr::new(&entry), room)
        });
        let receive = async {
            let _ = feed.write_all(program.as_bytes()).await;
            drop(feed);
            let bytes = hand_on(&mut out, pieces, on_bytes).await;
            drop(out);
            bytes
        };
        let talk = async { tokio::join!(receive, last_of(&mut err)) };
        tokio::pin!(talk);
        let (unpacked, (bytes, said)) = tokio::select! {
            unpacked = &mut unpacking => match unpacked {
                // Whatever else it sends or says is not waited for.
                Ok(Err(Refusal::Unwanted(why))) => return Err(refused(doing(), why, name)),
                unpacked => (unpacked, talk.await),
            },
            talked = &mut talk => (unpacking.await, talked),
        };
        let unpacked = unpacked.doing(ErrorKind::Internal, doing)?;
        let left_out = match unpacked {
            Err(Refusal::Unwanted(why)) => return Err(refused(doing(), why, name)),
            // A stream that was cut has its reason there, if the host knows one.
            Err(Refusal::Broken(why)) => {
                self.judge(doing(), self.end(channel).await, &said)?;
                return Err(Error::new(ErrorKind::Host, doing()).because(why));
            }
            Ok(left_out) => {
                self.judge(doing(), self.end(channel).await, &said)?;
                left_out
            }
        };
        let folder = fs_err::File::open(&place.folder).doing(ErrorKind::Host, doing)?;
        let shown = place.shown();
        move_to(landing.as_fd(), OsStr::new(name), folder.as_fd(), &place.name, &shown)
            .doing(ErrorKind::Host, doing)?;
        Ok(Copied { bytes, left_out })
    }

    /// Begins a program that goes on to read its input, which a shell that reads its program there could swallow: the program comes
    /// first, and is taken off by its length.
    async fn begin_with_data(&self, program: &str, is_root: bool) -> Result<Channel<'_>> {
        let sudo = if is_root && !self.shared.route.is_root() { "sudo -n -- " } else { "" };
        let command = format!("{sudo}sh -c 'eval \"$(dd bs=1 count={} 2>/dev/null)\"'", program.len());
        self.begin(&command).await
    }

    fn judge(&self, doing: String, end: ExecEnd, said: &str) -> Result<()> {
        let error = || Error::new(ErrorKind::Host, doing);
        match end {
            ExecEnd::Exited(0) => Ok(()),
            ExecEnd::Exited(code) => {
                let error = error().because(last_line(said, &format!("it ended there with exit code {code}")));
                let is_denied = said.contains("Permission denied");
                Err(if is_denied {
                    error.because(format!("as the user {}", self.user())).hint("`--root` does it as root")
                } else {
                    error
                })
            }
            ExecEnd::Broken => {
                Err(error().status(crate::error::Status::Temporary).because("the connection to the host broke"))
            }
        }
    }
}

/// The last line that tells something.
fn last_line(said: &str, otherwise: &str) -> String {
    said.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or(otherwise).to_owned()
}

/// What a host sent was not taken.
fn refused(doing: String, why: String, name: &str) -> Error {
    let is_link = why.contains("it is a link out of what is copied");
    let error = Error::new(ErrorKind::Host, doing).because(why).because("nothing was written here");
    if is_link { error.hint(format!("name what the link `{name}` leads to")) } else { error }
}

/// Reads all of what is said, and keeps the end of it.
async fn last_of(from: &mut (impl AsyncRead + Unpin)) -> String {
    let mut said = Vec::new();
    let mut buffer = vec![0_u8; 8 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        said.extend_from_slice(&buffer[..length]);
        if said.len() > 2 * SAID {
            said.drain(..said.len() - SAID);
        }
    }
    String::from_utf8_lossy(&said).into_owned()
}

/// A stream as it comes, for who reads it and blocks.
struct Arriving {
    pieces: mpsc::Receiver<Vec<u8>>,
    piece: Vec<u8>,
    read: usize,
}

impl Read for Arriving {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if self.read == self.piece.len() {
            match self.pieces.blocking_recv() {
                Some(piece) => (self.piece, self.read) = (piece, 0),
                None => return Ok(0),
            }
        }
        let length = into.len().min(self.piece.len() - self.read);
        into[..length].copy_from_slice(&self.piece[self.read..self.read + length]);
        self.read += length;
        Ok(length)
    }
}

/// Hands a stream on to who unpacks it, until it ends or nobody takes it any more; tells how many bytes that were.
async fn hand_on(from: &mut (impl AsyncRead + Unpin), to: mpsc::Sender<Vec<u8>>, on_bytes: OnBytes<'_>) -> u64 {
    let mut bytes = 0;
    let mut buffer = vec![0_u8; 128 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if to.send(buffer[..length].to_vec()).await.is_err() {
            break;
        }
        bytes += length as u64;
        on_bytes(bytes);
    }
    bytes
}

/// How much has passed.
#[derive(Default)]
struct Passed {
    bytes: u64,
}

/// Passes everything on; an end that does not take it any more says so by its exit code.
async fn pass(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    on_bytes: OnBytes<'_>,
) -> Passed {
    let mut passed = Passed::default();
    let mut buffer = vec![0_u8; 128 * 1024];
    loop {
        match from.read(&mut buffer).await {
            Ok(length @ 1..) if to.write_all(&buffer[..length]).await.is_ok() => {
                passed.bytes += length as u64;
                on_bytes(passed.bytes);
            }
            _ => break,
        }
    }
    let _ = to.flush().await;
    passed
}
