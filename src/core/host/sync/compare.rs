//! A sync from one end to the other: compared first, and then carried out.

use std::collections::{BTreeMap, BTreeSet};

use tokio::sync::mpsc;

use super::batch::{Batch, ByFolder, LARGE, batches, by_folder};
use super::decide::{Decision, Rules, candidates, decide};
use super::end::End;
use super::exclude::Excludes;
use super::part::Part;
use super::there::PIECES;
use super::tree::{Below, Entry, EntryKind, Scope, Tree, os};
use crate::error::{Error, ErrorKind, Result};
use crate::host::LeftOut;

/// What a sync does.
#[derive(Debug, Clone)]
pub struct SyncOptions {
    /// Whether what only the destination has is deleted.
    pub delete: bool,
    /// Whether contents decide what is the same, and not size and time.
    pub checksum: bool,
    /// What is neither sent nor deleted.
    pub excludes: Excludes,
    /// The size from which a file is sent by itself.
    pub large: u64,
}

impl Default for SyncOptions {
    fn default() -> Self {
        Self { delete: false, checksum: false, excludes: Excludes::none(), large: LARGE }
    }
}

/// How far a sync is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The bytes that have been sent, or need not be sent again.
    pub done: u64,
    /// The bytes of all files that are sent.
    pub all: u64,
}

/// What a sync did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Synced {
    /// Files and links that were sent.
    pub sent: usize,
    /// The bytes that went over the connection.
    pub bytes: u64,
    /// Bytes of large files that had arrived before.
    pub resumed: u64,
    /// Entries that were deleted.
    pub deleted: usize,
    /// Files and links that were the same.
    pub unchanged: usize,
    /// What cannot be sent.
    pub left_out: LeftOut,
    /// What could not be read, or was gone.
    pub unread: Vec<String>,
}

/// What differs between the two ends, and is to be done.
pub struct Differences<'a> {
    from: End<'a>,
    to: End<'a>,
    source: Tree,
    dest: Tree,
    decision: Decision,
    options: SyncOptions,
    /// For a single file: the name that it gets.
    as_name: Option<Below>,
}

/// Compares two ends. A folder becomes the same as the source; a file goes into a folder, or to the path itself.
///
/// # Errors
/// When one cannot be read, the source does not exist, or something is in the way.
pub async fn compare<'a>(from: &End<'a>, to: &End<'a>, options: SyncOptions) -> Result<Differences<'a>> {
    let doing = || format!("sync {} to {}", from.shown(), to.shown());
    let wrong = |kind: ErrorKind, why: String| Err(Error::new(kind, doing()).because(why));
    let source = from.list(&Scope::All, &options.excludes).await?;
    let (from_shown, to_shown) = (from.shown(), to.shown());
    match source.top.as_ref().map(|top| &top.kind) {
        None => wrong(ErrorKind::NotFound, format!("{from_shown} does not exist")),
        Some(EntryKind::Folder) => {
            let dest = to.list(&Scope::All, &options.excludes).await?;
            if dest.top.as_ref().is_some_and(|top| !top.is_folder()) {
                return wrong(ErrorKind::Host, format!("{to_shown} is not a folder"));
            }
            Differences::new(from.clone(), to.clone(), source, dest, options, None).await
        }
        Some(EntryKind::File { .. }) => {
            let name = from.name();
            let is_folder = to.ends_as_folder()
                || to.list(&Scope::Top, &Excludes::none()).await?.top.is_some_and(|top| top.is_folder());
            let (to, as_name) = if is_folder { (to.clone(), name.clone()) } else { (to.folder(), to.name()) };
            let mut dest = to.list(&Scope::One(as_name.clone()), &Excludes::none()).await?;
            if dest.top.as_ref().is_some_and(|top| !top.is_folder()) {
                return wrong(ErrorKind::Host, format!("{} is not a folder", to.shown()));
            }
            if let Some(found) = dest.entries.remove(&as_name) {
                dest.entries.insert(name.clone(), found);
            }
            let entries = BTreeMap::from_iter(source.top.clone().map(|top| (name, top)));
            let source = Tree { entries, ..source };
            let options = SyncOptions { delete: false, ..options };
            Differences::new(from.folder(), to, source, dest, options, Some(as_name)).await
        }
        Some(_) => wrong(ErrorKind::Usage, format!("{from_shown} is not a file or folder")),
    }
}

impl<'a> Differences<'a> {
    async fn new(
        from: End<'a>,
        to: End<'a>,
        source: Tree,
        dest: Tree,
        options: SyncOptions,
        as_name: Option<Below>,
    ) -> Result<Self> {
        let mut same = BTreeSet::new();
        if options.checksum && as_name.is_none() {
            let files = candidates(&source, &dest);
            let (ours, theirs) = if files.is_empty() {
                (BTreeMap::new(), BTreeMap::new())
            } else {
                tokio::try_join!(from.digests(&files), to.digests(&files))?
            };
            same = ours
                .into_iter()
                .filter(|(path, digest)| theirs.get(path) == Some(digest))
                .map(|(path, _)| path)
                .collect();
        }
        let rules = Rules {
            deletes: options.delete,
            by_content: options.checksum,
            kept_mode: to.kept_mode(),
            // A single file's other name is not known to what sets permissions.
            changes_modes: to.changes_modes() && as_name.is_none(),
        };
        let decision = decide(&source, &dest, rules, &same);
        if !decision.in_the_way.is_empty() {
            let mut error = Error::new(ErrorKind::Host, format!("sync {} to {}", from.shown(), to.shown()));
            for why in decision.in_the_way.iter().take(5) {
                error = error.because(format!("{why} in the destination"));
            }
            return Err(error.because("nothing was changed").hint("`--delete` removes what is in the way"));
        }
        Ok(Self { from, to, source, dest, decision, options, as_name })
    }

    /// Whether both ends are the same.
    pub fn is_nothing(&self) -> bool {
        self.decision.is_nothing()
    }

    /// Whether everything in the destination would be deleted because the source has nothing.
    pub fn empties(&self) -> bool {
        self.source.entries.is_empty() && self.decision.removed_count > 0
    }

    /// How many entries are deleted.
    pub fn deletes(&self) -> usize {
        self.decision.removed_count + self.decision.removed_first.len()
    }

    /// What would be done, as lines: `send a/b`, `delete c`.
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let Decision { removed_first, folders, files, links, modes, removed, .. } = &self.decision;
        let shown = |path: &Below| os(path).display().to_string();
        let mut lines: Vec<(&'static str, String)> = Vec::new();
        for (what, paths) in
            [("delete", removed_first), ("make", folders), ("send", files), ("send", links), ("delete", removed)]
        {
            lines.extend(paths.iter().map(|path| (what, shown(path))));
        }
        let only = |path: &&(Below, u32)| !folders.contains(&path.0);
        lines.extend(modes.iter().filter(only).map(|(path, _)| ("set permissions", shown(path))));
        lines
    }

    /// The bytes of all files that are sent.
    pub fn bytes(&self) -> u64 {
        self.decision.files.iter().filter_map(|path| self.source.entries.get(path)).map(Entry::size).sum()
    }

    /// Makes the destination the same as the source.
    ///
    /// # Errors
    /// When a side cannot be read or written, or the connection is lost. What has arrived whole is kept.
    pub async fn carry_out(&self, on_progress: &mut (dyn FnMut(Progress) + Send)) -> Result<Synced> {
        let decision = &self.decision;
        let mut synced = Synced {
            unchanged: decision.unchanged,
            left_out: decision.left_out.clone(),
            deleted: self.deletes(),
            ..Synced::default()
        };
        if self.dest.top.is_none() || !decision.removed_first.is_empty() {
            self.to.remove(&by_folder(&decision.removed_first)).await?;
        }
        let mut progress = Progress { done: 0, all: self.bytes() };
        let (batches, large) = match self.as_name {
            Some(_) => (Vec::new(), decision.files.iter().cloned().collect()),
            None => batches(&self.source, &self.dest, decision, self.options.large),
        };
        for batch in batches {
            self.send(&batch, &mut progress, on_progress, &mut synced).await?;
        }
        for path in large {
            self.send_large(&path, &mut progress, on_progress, &mut synced).await?;
        }
        if !decision.modes.is_empty() {
            self.to.set_modes(&modes_of(&decision.modes)).await?;
        }
        if !decision.removed.is_empty() {
            self.to.remove(&by_folder(&decision.removed)).await?;
        }
        Ok(synced)
    }

    /// Sends a batch.
    async fn send(
        &self,
        batch: &Batch,
        progress: &mut Progress,
        on_progress: &mut (dyn FnMut(Progress) + Send),
        synced: &mut Synced,
    ) -> Result<()> {
        let known = |path: &Below| self.source.entries.get(path).map(|entry| (path.clone(), entry.clone()));
        let entries: Vec<(Below, Entry)> = batch.names.iter().filter_map(known).collect();
        let (into, mut given) = mpsc::channel(PIECES);
        let (on, taken) = mpsc::channel(PIECES);
        let end = progress.done + batch.bytes;
        let mut sent = 0;
        let relay = async {
            while let Some(piece) = given.recv().await {
                sent += Vec::len(&piece) as u64;
                if on.send(piece).await.is_err() {
                    break;
                }
                on_progress(Progress { done: end.min(progress.done + sent), ..*progress });
            }
            drop((on, given));
        };
        let give = self.from.give(&entries, into);
        let take = self.to.take(batch, &entries, taken);
        let (gave, took, ()) = tokio::join!(give, take, relay);
        let (missing, left_out) = first_of(gave, took)?;
        let missing: BTreeSet<Below> = missing.into_iter().collect();
        progress.done = end;
        on_progress(*progress);
        synced.bytes += sent;
        let is_sent = |path: &Below| !missing.contains(path);
        synced.sent += entries.iter().filter(|(path, entry)| !entry.is_folder() && is_sent(path)).count();
        synced.left_out.count += left_out.count;
        // Of links, those that lead out of the copy are missing, and said to be left out.
        let is_link = |path: &Below| self.decision.links.contains(path);
        let links = missing.iter().filter(|path| is_link(path)).count();
        let is_unread = |path: &&Below| !is_link(path) || left_out.count < links;
        synced.unread.extend(missing.iter().filter(is_unread).map(|path| os(path).display().to_string()));
        let named = left_out.named.iter().map(|line| line.strip_prefix("./").unwrap_or(line).to_owned());
        synced.left_out.named.extend(named);
        Ok(())
    }

    /// Sends a file by itself, from where it was cut.
    async fn send_large(
        &self,
        path: &Below,
        progress: &mut Progress,
        on_progress: &mut (dyn FnMut(Progress) + Send),
        synced: &mut Synced,
    ) -> Result<()> {
        let Some(Entry { kind: EntryKind::File { size, modified }, mode }) = self.source.entries.get(path) else {
            return Ok(());
        };
        let goal = self.as_name.as_ref().unwrap_or(path);
        let name = Part::name(goal, *size, *modified);
        let arrived = self.dest.parts.get(&name).copied().filter(|arrived| *arrived <= *size).unwrap_or(0);
        let mut part = Part {
            path: path.clone(),
            goal: goal.clone(),
            part: name,
            from: arrived,
            size: *size,
            mode: mode & self.to.kept_mode(),
            modified: *modified,
        };
        if arrived > 0 {
            let there = [super::tree::STAGE.as_bytes(), b"/", &part.part].concat();
            let (ours, theirs) =
                tokio::try_join!(self.from.digest_of_start(path, arrived), self.to.digest_of_start(&there, arrived))?;
            if ours != theirs || ours.is_none() {
                part.from = 0;
            }
        }
        let begin = progress.done + part.from;
        let (into, mut given) = mpsc::channel(PIECES);
        let (on, taken) = mpsc::channel(PIECES);
        let mut sent = 0;
        let relay = async {
            while let Some(piece) = given.recv().await {
                sent += Vec::len(&piece) as u64;
                if on.send(piece).await.is_err() {
                    break;
                }
                on_progress(Progress { done: begin + sent, ..*progress });
            }
            drop((on, given));
        };
        let (gave, took, ()) = tokio::join!(self.from.give_part(&part, into), self.to.take_part(&part, taken), relay);
        first_of(gave, took)?;
        progress.done += size;
        on_progress(*progress);
        synced.bytes += sent;
        synced.resumed += part.from;
        synced.sent += 1;
        Ok(())
    }
}

/// The result of both sides: the giver knows best why a stream was cut.
fn first_of<T>(gave: Result<()>, took: Result<T>) -> Result<T> {
    gave?;
    took
}

fn modes_of(modes: &[(Below, u32)]) -> BTreeMap<u32, ByFolder> {
    let mut paths: BTreeMap<u32, Vec<&Below>> = BTreeMap::new();
    for (path, mode) in modes {
        paths.entry(*mode).or_default().push(path);
    }
    paths.into_iter().map(|(mode, paths)| (mode, by_folder(paths))).collect()
}
