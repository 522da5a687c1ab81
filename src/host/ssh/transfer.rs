//! Files and folders to a host and back: one tar stream over one session, landing by a rename.
//!
//! Both ends use the system's `tar`. On the host a folder of its own beside the goal takes what comes, so that a stream that was cut
//! leaves nothing half under its name. A folder that is there already is merged into, as `cp -r` does.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::process::Command;

use super::host::{Channel, SshHost};
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::host::{ExecEnd, Host as _};

/// Told how many bytes have passed so far.
pub type OnBytes<'a> = &'a mut (dyn FnMut(u64) + Send);

/// Takes a tar stream on its input, and lets it land.
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
for from in "$land"/* "$land"/.[!.]* "$land"/..?*; do
    [ -e "$from" ] || [ -L "$from" ] || continue
    if [ $into = yes ]; then to=$folder/${from##*/}; else to=$goal; fi
    if [ -d "$from" ] && [ ! -L "$from" ] && [ -d "$to" ]; then
        cp -pPR -- "$from/." "$to/"
    elif [ -d "$to" ]; then
        echo "$to is a folder there" >&2; exit 1
    else
        mv -f -- "$from" "$to"
    fi
done
"#;

/// Gives files as a tar stream on its output.
const SEND: &str = r#"
set -eu
case $source in /) echo "name a folder or file in it" >&2; exit 1 ;; esac
source=${source%/}
[ -e "$source" ] || [ -L "$source" ] || { echo "$source is not there" >&2; exit 1; }
folder=$(dirname -- "$source")
exec tar -cf - -C "$folder" -- "$(basename -- "$source")"
"#;

/// One word of a POSIX shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

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
        let (mut local_said, mut said, mut nothing) = (String::new(), String::new(), Vec::new());
        let send = async {
            let sent = match to.write_all(program.as_bytes()).await {
                Ok(()) => pass(&mut from, &mut to, on_bytes).await,
                Err(_) => Passed::default(),
            };
            // Without its end the host would take a cut stream for a whole one; tar there tells them apart.
            drop((to, from));
            sent
        };
        let (sent, ..) = tokio::join!(
            send,
            tar_said.read_to_string(&mut local_said),
            err.read_to_string(&mut said),
            out.read_to_end(&mut nothing)
        );
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
    /// # Errors
    /// When it is not there, when this machine cannot be written, or when the connection is lost. Nothing half is left then.
    pub async fn download(&self, source: &str, goal: &Path, is_root: bool, on_bytes: OnBytes<'_>) -> Result<u64> {
        let doing = || format!("copy {}:{source}", self.name());
        let takes_in = goal.is_dir() || goal.as_os_str().to_string_lossy().ends_with('/');
        let folder = if takes_in { goal } else { goal.parent().unwrap_or(Path::new("/")) };
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        if !folder.is_dir() {
            return Err(Error::new(ErrorKind::NotFound, doing()).because(format!("{} is no folder", folder.display())));
        }
        let land = tempfile::Builder::new().prefix(".gpucl-").tempdir_in(folder).doing(ErrorKind::Host, doing)?;
        let mut tar = Command::new("tar");
        tar.args(["-xpf", "-", "-C"]).arg(land.path());
        tar.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut tar = tar.spawn().doing(ErrorKind::Host, || "run `tar`".to_owned())?;
        let (Some(mut to), Some(mut tar_said)) = (tar.stdin.take(), tar.stderr.take()) else {
            return Err(Error::new(ErrorKind::Internal, doing()).because("its pipes are missing"));
        };
        let program = format!("source={}\n{SEND}", quoted(source));
        let mut channel = self.begin_with_data(&program, is_root).await?;
        let (Some(mut feed), Some(mut out), Some(mut err)) =
            (channel.child.stdin().take(), channel.child.stdout().take(), channel.child.stderr().take())
        else {
            return Err(Error::new(ErrorKind::Internal, doing()).because("its pipes are missing"));
        };
        let (mut local_said, mut said) = (String::new(), String::new());
        let receive = async {
            let _ = feed.write_all(program.as_bytes()).await;
            drop(feed);
            let received = pass(&mut out, &mut to, on_bytes).await;
            drop(to);
            received
        };
        let (received, ..) =
            tokio::join!(receive, tar_said.read_to_string(&mut local_said), err.read_to_string(&mut said));
        let unpacked = tar.wait().await.doing(ErrorKind::Host, doing)?;
        let end = self.end(channel).await;
        self.judge(doing(), end, &said)?;
        if !unpacked.success() {
            return Err(
                Error::new(ErrorKind::Host, doing()).because(last_line(&local_said, "tar failed on this machine"))
            );
        }
        for entry in fs_err::read_dir(land.path()).doing(ErrorKind::Host, doing)? {
            let entry = entry.doing(ErrorKind::Host, doing)?;
            let to = if takes_in { goal.join(entry.file_name()) } else { goal.to_owned() };
            settle(&entry.path(), &to).doing(ErrorKind::Host, doing)?;
        }
        Ok(received.bytes)
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

/// Brings what has landed to its place: by a rename, or into the folder that is there.
fn settle(from: &Path, to: &Path) -> std::io::Result<()> {
    let is_folder = |path: &Path| fs_err::symlink_metadata(path).is_ok_and(|found| found.is_dir());
    if !is_folder(from) || !to.is_dir() {
        return fs_err::rename(from, to);
    }
    for entry in fs_err::read_dir(from)? {
        let entry = entry?;
        settle(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}
