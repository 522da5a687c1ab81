//! How what differs is divided: small entries into batches, each one archive, and large files by themselves.

use std::collections::{BTreeMap, BTreeSet};

use super::decide::Decision;
use super::tree::{Below, EntryKind, Tree, above, split};

/// A batch ends at this size; a larger file goes by itself, and can be resumed.
pub(crate) const LARGE: u64 = 64 << 20;
/// The most entries of a batch.
const ENTRIES: usize = 20_000;

/// Names grouped by the folder that they are in.
pub(crate) type ByFolder = BTreeMap<Below, Vec<Below>>;

/// Entries that are sent as one archive.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Batch {
    /// What the archive holds: also the folders that entries are in, in whose place they arrive.
    pub(crate) names: BTreeSet<Below>,
    /// What is moved into place: of a new folder only the folder itself.
    pub(crate) moves: ByFolder,
    /// The bytes of its files.
    pub(crate) bytes: u64,
}

/// Groups paths by their folder.
pub(crate) fn by_folder<'a>(paths: impl IntoIterator<Item = &'a Below>) -> ByFolder {
    let mut groups = ByFolder::new();
    for path in paths {
        let (folder, name) = split(path);
        groups.entry(folder.to_vec()).or_default().push(name.to_vec());
    }
    groups
}

/// Divides what has to arrive; files larger than `large` are returned by themselves.
pub(crate) fn batches(from: &Tree, to: &Tree, decision: &Decision, large: u64) -> (Vec<Batch>, Vec<Below>) {
    let is_there = |path: &[u8]| {
        path.is_empty()
            || (to.entries.get(path).is_some_and(super::tree::Entry::is_folder)
                && !decision.removed_first.contains(path)
                && !above(path).any(|folder| decision.removed_first.contains(folder)))
    };
    let all: BTreeSet<&Below> = decision.folders.iter().chain(&decision.files).chain(&decision.links).collect();
    let (mut batches, mut whole) = (Vec::new(), Vec::new());
    let mut batch = Batch::default();
    let mut sent: BTreeSet<&[u8]> = BTreeSet::new();
    let mut new: BTreeSet<&[u8]> = BTreeSet::new();
    for path in all {
        let Some(entry) = from.entries.get(path) else { continue };
        let size = entry.size();
        if size > large {
            whole.push(path.clone());
            continue;
        }
        if !batch.names.is_empty() && (batch.bytes + size > large.saturating_mul(2) || batch.names.len() >= ENTRIES) {
            batches.push(std::mem::take(&mut batch));
            sent.append(&mut new);
        }
        batch.bytes += size;
        let (folder, name) = split(path);
        if is_there(folder) || sent.contains(folder) {
            batch.moves.entry(folder.to_vec()).or_default().push(name.to_vec());
        }
        batch.names.extend(above(path).map(<[u8]>::to_vec));
        batch.names.insert(path.clone());
        if entry.kind == EntryKind::Folder {
            new.insert(path);
        }
    }
    if !batch.names.is_empty() {
        batches.push(batch);
    }
    (batches, whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::sync::decide::{Rules, decide};
    use crate::host::sync::exclude::Excludes;

    #[test]
    fn a_new_folder_is_moved_as_one_and_filled_by_later_batches() {
        let parse = |list: &[u8]| Tree::parse(list, &Excludes::none()).unwrap();
        let from = parse(
            b"d 755 0 1 \0\0d 755 0 1 new\0\0d 755 0 1 new/deep\0\0f 644 9 1 new/deep/a\0\0f 644 9 1 new/deep/b\0\0\
              d 755 0 1 old\0\0f 644 9 1 old/c\0\0f 644 99 1 old/large\0\0f 644 1 1 top\0\0",
        );
        let to = parse(b"d 755 0 1 \0\0d 755 0 1 old\0\0");
        let rules = Rules { deletes: false, by_content: false, kept_mode: 0o777, changes_modes: true };
        let decision = decide(&from, &to, rules, &BTreeSet::new());
        let text = |path: &Below| String::from_utf8(path.clone()).unwrap();
        let shown = |batches: &[Batch]| -> Vec<String> {
            let moves = |batch: &Batch| {
                let moves: Vec<String> = batch
                    .moves
                    .iter()
                    .flat_map(|(folder, names)| names.iter().map(|name| format!("{}:{}", text(folder), text(name))))
                    .collect();
                moves.join(" ")
            };
            batches.iter().map(moves).collect()
        };
        let (all, whole) = batches(&from, &to, &decision, 50);
        assert_eq!(shown(&all), [":new :top old:c"]);
        assert_eq!(whole, [b"old/large".to_vec()]);
        let (all, whole) = batches(&from, &to, &decision, 9);
        assert_eq!(shown(&all), [":new", ":top old:c"]);
        let (all, _) = batches(&from, &to, &decision, 4);
        assert_eq!((shown(&all), whole.len()), (vec![":new :top".to_owned()], 1));
        let (all, _) = batches(&from, &to, &decision, 5);
        assert_eq!(shown(&all), [":new :top"]);
        let small = Decision { files: [b"new/deep/a".to_vec()].into(), folders: BTreeSet::new(), ..decision };
        let (all, _) = batches(&from, &from, &small, 50);
        assert_eq!(shown(&all), ["new/deep:a"]);
        assert_eq!(all[0].names.iter().map(text).collect::<Vec<_>>(), ["new", "new/deep", "new/deep/a"]);
    }
}
