//! A folder of a host: read and written by shell programs, each one exec.

use std::collections::BTreeMap;

use tokio::sync::mpsc::{self, Receiver, Sender};

use super::batch::{Batch, ByFolder};
use super::exclude::Excludes;
use super::part::{Digest, Part};
use super::shell::{self, Program};
use super::tree::{Below, Scope, Tree, split};
use crate::error::{Error, ErrorKind, Result, Status};
use crate::host::ssh::path::{ABSENT, HostPath};
use crate::host::ssh::stream::{Ended, StreamHost};
use crate::host::ssh::transfer::last_line;
use crate::util::text::quoted;

/// How long the list of a folder may be: a million names.
const LIST: usize = 512 << 20;
/// How many pieces of a stream may wait.
pub(super) const PIECES: usize = 8;

/// A path on a host.
#[derive(Clone)]
pub struct There<'a> {
    /// The host.
    pub machine: &'a dyn StreamHost,
    /// The path: absolute, or relative to the login user's home folder, or to `within`.
    pub path: String,
    /// The folder that the path does not leave, as in [`HostPath`].
    pub within: Option<String>,
    /// Whether the session becomes root, if only to become the owner of `within`.
    pub is_root: bool,
}

impl There<'_> {
    fn at(&self) -> HostPath<'_> {
        HostPath { path: &self.path, within: self.within.as_deref(), is_root: self.is_root }
    }

    /// The path for messages.
    pub(super) fn shown(&self) -> String {
        format!("{}:{}", self.machine.machine(), self.path)
    }

    /// Whether permissions alone may be changed: not as root in a folder that is somebody's.
    pub(super) fn changes_modes(&self) -> bool {
        self.within.is_some() || !self.is_root
    }

    /// The folder that this path is in.
    pub(super) fn folder(&self) -> Self {
        let (folder, _) = split(self.path.trim_end_matches('/').as_bytes());
        let folder = String::from_utf8_lossy(folder).into_owned();
        let path = match folder.as_str() {
            "" if self.path.starts_with('/') => "/".to_owned(),
            "" => "./".to_owned(),
            folder => format!("{folder}/"),
        };
        Self { path, ..self.clone() }
    }

    /// The name that the path ends with.
    pub(super) fn name(&self) -> Below {
        split(self.path.trim_end_matches('/').as_bytes()).1.to_vec()
    }

    /// The path as a plain shell word that is no option.
    fn word(&self) -> String {
        if self.path.starts_with('/') { quoted(&self.path) } else { quoted(&format!("./{}", self.path)) }
    }

    /// Enters the folder, and sets `$top`.
    fn enter(&self, makes: bool) -> Program {
        let enter = match self.within {
            Some(_) => self.at().enter(makes, true),
            None => {
                let make = if makes { "mkdir -p -- \"$goal\"\n" } else { "" };
                format!("set -eu\ngoal={}\n{make}cd -P -- \"$goal\"\n", self.word())
            }
        };
        Program::new(&enter).with(include_str!("shell/go.sh"))
    }

    /// What the path leads to.
    pub(super) async fn list(&self, scope: &Scope, excludes: &Excludes) -> Result<Tree> {
        let program = match self.within {
            Some(_) => Program::new(&self.at().enter(false, self.path.ends_with('/'))).set("within", "1"),
            None => Program::new(&format!("set -eu\ngoal={}\nshown={}\n", self.word(), quoted(&self.path)))
                .set("within", ""),
        };
        let (scope, name): (&str, &[u8]) = match scope {
            Scope::Top => ("top", b""),
            Scope::All => ("all", b""),
            Scope::One(name) => ("one", name),
        };
        let program = program.set("scope", scope).set("name", name).with(include_str!("shell/list.sh"));
        let doing = || format!("list {}", self.shown());
        let (ended, listing) = self.ask(program, None, LIST, &doing).await?;
        if ended.code == Some(ABSENT) {
            return Ok(Tree::default());
        }
        self.judge(doing(), &ended)?;
        Tree::parse(&listing, excludes).map_err(|why| Error::new(ErrorKind::Host, doing()).because(why))
    }

    /// The digests of files.
    pub(super) async fn digests(&self, paths: &[Below]) -> Result<BTreeMap<Below, Digest>> {
        let doing = || format!("compare files of {}", self.shown());
        let program = self.enter(false).with("xargs -0 -r sha256sum --zero -- || :");
        let names = paths.iter().flat_map(|path| [b"./", path.as_slice(), b"\0"].concat()).collect();
        let (ended, answer) = self.ask(program, Some(names), LIST, &doing).await?;
        self.judge(doing(), &ended)?;
        let digest = |record: &[u8]| {
            let at = record.iter().position(|byte| *byte == b' ')?;
            let path = record.get(at + 2..)?.strip_prefix(b"./")?;
            Some((path.to_vec(), Digest::parse(&record[..at])?))
        };
        Ok(answer.split(|byte| *byte == 0).filter_map(digest).collect())
    }

    /// The digest of the beginning of a file.
    pub(super) async fn digest_of_start(&self, path: &[u8], length: u64) -> Result<Option<Digest>> {
        let doing = || format!("compare a file of {}", self.shown());
        let program = self
            .enter(false)
            .set("folder", split(path).0)
            .set("name", split(path).1)
            .with(format!("go \"$folder\"\nhead -c {length} -- \"./$name\" | sha256sum"));
        let (ended, answer) = self.ask(program, None, 4096, &doing).await?;
        self.judge(doing(), &ended)?;
        Ok(answer.split(|byte| *byte == b' ').next().and_then(Digest::parse))
    }

    /// Sends an archive of these names.
    pub(super) async fn give(&self, names: Vec<Below>, into: Sender<Vec<u8>>) -> Result<()> {
        let program = self.enter(false).with(include_str!("shell/give.sh"));
        let names = names.iter().flat_map(|path| [b"./", path.as_slice(), b"\0"].concat()).collect();
        let ended = self.machine.run(&program.bytes(), self.at(), input(Some(names)), into).await?;
        self.judge(format!("copy from {}", self.shown()), &ended)
    }

    /// Receives an archive, and puts what is in it in its place.
    pub(super) async fn take(&self, batch: &Batch, from: Receiver<Vec<u8>>) -> Result<()> {
        let script = shell::moves(&batch.moves);
        let program = self
            .enter(true)
            .with(include_str!("shell/stage.sh"))
            .set("length", script.len().to_string())
            .with(include_str!("shell/take.sh"));
        self.send(program, script, from).await
    }

    /// Sends a file from `part.from` on.
    pub(super) async fn give_part(&self, part: &Part, into: Sender<Vec<u8>>) -> Result<()> {
        let program = self
            .enter(false)
            .set("folder", split(&part.path).0)
            .set("name", split(&part.path).1)
            .set("from", part.from.to_string())
            .set("size", part.size.to_string())
            .with("go \"$folder\"")
            .with(include_str!("shell/give_part.sh"));
        let ended = self.machine.run(&program.bytes(), self.at(), input(None), into).await?;
        self.judge(format!("copy from {}", self.shown()), &ended)
    }

    /// Receives a file from `part.from` on, and puts it in its place when it is whole.
    pub(super) async fn take_part(&self, part: &Part, from: Receiver<Vec<u8>>) -> Result<()> {
        let program = self
            .enter(true)
            .with(include_str!("shell/stage.sh"))
            .set("part", &part.part)
            .set("folder", split(&part.goal).0)
            .set("name", split(&part.goal).1)
            .set("from", part.from.to_string())
            .set("size", part.size.to_string())
            .set("mode", format!("{:o}", part.mode))
            .set("modified", part.modified.to_string())
            .with(include_str!("shell/part.sh"));
        self.send(program, Vec::new(), from).await
    }

    /// Makes the folder, and removes names in it.
    pub(super) async fn remove(&self, groups: &ByFolder) -> Result<()> {
        self.act(shell::removals(groups)).await
    }

    /// Sets permissions in the folder.
    pub(super) async fn set_modes(&self, modes: &BTreeMap<u32, ByFolder>) -> Result<()> {
        self.act(modes.iter().flat_map(|(mode, groups)| shell::modes(*mode, groups)).collect()).await
    }

    /// Makes the folder, and runs a script in it, which is the input: it may be long.
    async fn act(&self, script: Vec<u8>) -> Result<()> {
        let program = self.enter(true).with("script=$(cat)").with("eval \"$script\"");
        let doing = || format!("write in {}", self.shown());
        let (ended, _) = self.ask(program, Some(script), 4096, &doing).await?;
        self.judge(doing(), &ended)
    }

    /// Runs a program, gives it first these bytes and then the pieces that come.
    async fn send(&self, program: Program, first: Vec<u8>, mut pieces: Receiver<Vec<u8>>) -> Result<()> {
        let (into, input) = mpsc::channel(PIECES);
        let (out, mut ignored) = mpsc::channel(1);
        let feed = async move {
            if !first.is_empty() && into.send(first).await.is_err() {
                return;
            }
            while let Some(piece) = pieces.recv().await {
                if into.send(piece).await.is_err() {
                    return;
                }
            }
        };
        let drain = async move { while ignored.recv().await.is_some() {} };
        let program = program.bytes();
        let (ended, (), ()) = tokio::join!(self.machine.run(&program, self.at(), input, out), feed, drain);
        self.judge(format!("copy to {}", self.shown()), &ended?)
    }

    /// Runs a program with this input; returns what it prints.
    async fn ask(
        &self,
        program: Program,
        given: Option<Vec<u8>>,
        limit: usize,
        doing: &(dyn Fn() -> String + Sync),
    ) -> Result<(Ended, Vec<u8>)> {
        let (out, mut pieces) = mpsc::channel::<Vec<u8>>(PIECES);
        let gather = async move {
            let mut answer: Vec<u8> = Vec::new();
            while let Some(piece) = pieces.recv().await {
                answer.extend_from_slice(&piece);
                if answer.len() > limit {
                    return None;
                }
            }
            Some(answer)
        };
        let program = program.bytes();
        let (ended, answer) = tokio::join!(self.machine.run(&program, self.at(), input(given), out), gather);
        let answer = answer.ok_or_else(|| Error::new(ErrorKind::Host, doing()).because("its answer has no end"))?;
        Ok((ended?, answer))
    }

    fn judge(&self, doing: String, ended: &Ended) -> Result<()> {
        let error = Error::new(ErrorKind::Host, doing);
        match ended.code {
            Some(0) => Ok(()),
            Some(code) => {
                let error = error.because(last_line(&ended.said, &format!("it failed there with exit code {code}")));
                let is_denied = ended.said.contains("Permission denied") && self.within.is_none() && !self.is_root;
                Err(match self.machine.account().filter(|_| is_denied) {
                    Some(user) => error.because(format!("as the user {user}")).hint("use `--root` to do it as root"),
                    None => error,
                })
            }
            None => Err(error
                .status(Status::Temporary)
                .because("the connection to the host broke")
                .hint("run it again: what has arrived is kept")),
        }
    }
}

/// The input of a program: these bytes and no more.
fn input(bytes: Option<Vec<u8>>) -> Receiver<Vec<u8>> {
    let (into, input) = mpsc::channel(1);
    if let Some(bytes) = bytes.filter(|bytes| !bytes.is_empty()) {
        // The channel has room for one.
        let _ = into.try_send(bytes);
    }
    input
}
