//! What a sync has to do, from what is on both sides: pure.

use std::collections::BTreeSet;

use super::tree::{Below, Entry, EntryKind, Tree, above, os};
use crate::host::LeftOut;

/// What a sync may do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// Whether what only the destination has is deleted.
    pub(crate) deletes: bool,
    /// Whether contents decide, and not size and time.
    pub(crate) by_content: bool,
    /// The permission bits that arrive.
    pub(crate) kept_mode: u32,
    /// Whether permissions alone are changed; otherwise a file with others is sent again.
    pub(crate) changes_modes: bool,
}

/// What has to be done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Decision {
    /// Removed before anything arrives: it is in the way.
    pub(crate) removed_first: BTreeSet<Below>,
    /// Folders that are new.
    pub(crate) folders: BTreeSet<Below>,
    /// Files that are sent.
    pub(crate) files: BTreeSet<Below>,
    /// Links that are sent.
    pub(crate) links: BTreeSet<Below>,
    /// Permissions that are set at the end.
    pub(crate) modes: Vec<(Below, u32)>,
    /// Removed at the end; what is below a removed folder is not listed.
    pub(crate) removed: BTreeSet<Below>,
    /// How many entries are on the destination's side only, those below a removed folder included.
    pub(crate) removed_count: usize,
    /// Files and links that are the same on both sides.
    pub(crate) unchanged: usize,
    /// What cannot be sent.
    pub(crate) left_out: LeftOut,
    /// What is in the way and may not be removed, with the reason.
    pub(crate) in_the_way: Vec<String>,
}

/// The files whose contents have to be compared: in both trees, of one size.
pub(crate) fn candidates(from: &Tree, to: &Tree) -> Vec<Below> {
    let is_candidate = |path: &Below, entry: &Entry| match (&entry.kind, to.entries.get(path).map(|found| &found.kind))
    {
        (EntryKind::File { size, .. }, Some(EntryKind::File { size: there, .. })) => size == there,
        _ => false,
    };
    from.entries.iter().filter(|(path, entry)| is_candidate(path, entry)).map(|(path, _)| path.clone()).collect()
}

/// Compares two trees; `same` are the files with equal contents, where contents decide.
pub(crate) fn decide(from: &Tree, to: &Tree, rules: Rules, same: &BTreeSet<Below>) -> Decision {
    let mut decision = Decision::default();
    let kept: BTreeSet<&[u8]> = to.excluded.iter().flat_map(|path| above(path)).collect();
    for (path, entry) in &from.entries {
        let found = to.entries.get(path);
        if entry.kind == EntryKind::Other {
            decision.left_out.add(os(path), "it is not a file, folder or link");
            continue;
        }
        if above(path).any(|folder| is_in_the_way(from, to, folder)) {
            // The folder's own turn says so.
            if !rules.deletes {
                continue;
            }
        }
        let mode = entry.mode & rules.kept_mode;
        match (&entry.kind, found.map(|found| &found.kind)) {
            (EntryKind::Folder, Some(EntryKind::Folder)) => {
                if rules.changes_modes && found.is_some_and(|found| found.mode & 0o777 != mode) {
                    decision.modes.push((path.clone(), mode));
                }
                continue;
            }
            (EntryKind::Folder, there) => {
                if there.is_some() {
                    decision.clear(path, found, rules, &kept);
                }
                decision.folders.insert(path.clone());
                // Until the end, what it holds has to be written.
                if mode & 0o700 != 0o700 {
                    decision.modes.push((path.clone(), mode));
                }
                continue;
            }
            (_, Some(EntryKind::Folder)) => decision.clear(path, found, rules, &kept),
            (EntryKind::Link { target }, Some(EntryKind::Link { target: there })) if target == there => {
                decision.unchanged += 1;
                continue;
            }
            (
                EntryKind::File { size, modified },
                Some(EntryKind::File { size: size_there, modified: modified_there }),
            ) => {
                let is_same = if rules.by_content {
                    same.contains(path)
                } else {
                    size == size_there && modified == modified_there
                };
                let has_mode = found.is_some_and(|found| found.mode & 0o777 == mode);
                if is_same && (has_mode || rules.changes_modes) {
                    if !has_mode {
                        decision.modes.push((path.clone(), mode));
                    }
                    decision.unchanged += 1;
                    continue;
                }
            }
            _ => {}
        }
        match entry.kind {
            EntryKind::Link { .. } => decision.links.insert(path.clone()),
            _ => decision.files.insert(path.clone()),
        };
    }
    if rules.deletes {
        for path in to.entries.keys() {
            let is_below = |removed: &BTreeSet<Below>| above(path).any(|folder| removed.contains(folder));
            if is_below(&decision.removed) {
                decision.removed_count += 1;
            } else if !from.entries.contains_key(path)
                && !kept.contains(path.as_slice())
                && !is_below(&decision.removed_first)
            {
                decision.removed.insert(path.clone());
                decision.removed_count += 1;
            }
        }
    }
    decision
}

/// Whether the source has a folder where the destination has something else.
fn is_in_the_way(from: &Tree, to: &Tree, folder: &[u8]) -> bool {
    let is_folder = |tree: &Tree| tree.entries.get(folder).map(Entry::is_folder);
    is_folder(from) == Some(true) && is_folder(to) == Some(false)
}

impl Decision {
    /// Removes what is in the way of a path, if that is allowed.
    fn clear(&mut self, path: &Below, found: Option<&Entry>, rules: Rules, kept: &BTreeSet<&[u8]>) {
        let what = match found.map(|found| &found.kind) {
            Some(EntryKind::Folder) => "a folder",
            Some(EntryKind::Link { .. }) => "a link",
            _ => "not a folder",
        };
        if rules.deletes && !kept.contains(path.as_slice()) {
            self.removed_first.insert(path.clone());
        } else {
            self.in_the_way.push(format!("{} is {what}", os(path).display()));
        }
    }

    /// Whether everything is as it should be.
    pub(crate) fn is_nothing(&self) -> bool {
        self.removed_first.is_empty()
            && self.folders.is_empty()
            && self.files.is_empty()
            && self.links.is_empty()
            && self.modes.is_empty()
            && self.removed.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::sync::exclude::Excludes;

    /// A tree from `d a`, `f a/x 3 10`, `l l target`.
    fn tree(lines: &[&str], patterns: &[&str]) -> Tree {
        let patterns: Vec<String> = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
        let mut list = b"d 755 0 1 \0\0".to_vec();
        for line in lines {
            let mut words = line.split(' ');
            let (kind, path) = (words.next().unwrap(), words.next().unwrap());
            let (first, second) = (words.next().unwrap_or("0"), words.next().unwrap_or("1"));
            let mode = words.next().unwrap_or(if kind == "d" { "755" } else { "644" });
            let (size, target) = if kind == "l" { ("0", first) } else { (first, "") };
            list.extend(format!("{kind} {mode} {size} {second}.5 {path}\0{target}\0").bytes());
        }
        Tree::parse(&list, &Excludes::new(&patterns).unwrap()).unwrap()
    }

    const RULES: Rules = Rules { deletes: false, by_content: false, kept_mode: 0o777, changes_modes: true };
    const DELETES: Rules = Rules { deletes: true, ..RULES };

    fn shown(paths: &BTreeSet<Below>) -> String {
        let paths: Vec<_> = paths.iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect();
        paths.join(" ")
    }

    fn between(from: &[&str], to: &[&str], rules: Rules) -> Decision {
        decide(&tree(from, &[]), &tree(to, &[]), rules, &BTreeSet::new())
    }

    #[test]
    fn only_what_differs_is_sent() {
        let from = ["d a", "f a/same 3 10", "f a/new 3 10", "f a/longer 4 10", "f a/later 3 11", "l l a", "l m b"];
        let to = ["d a", "f a/same 3 10", "f a/longer 3 10", "f a/later 3 10", "l l a", "l m c", "f only 1 1"];
        let decision = between(&from, &to, RULES);
        assert_eq!(shown(&decision.files), "a/later a/longer a/new");
        assert_eq!(shown(&decision.links), "m");
        assert_eq!((decision.unchanged, decision.folders.len(), decision.removed.len()), (2, 0, 0));
        assert!(between(&from, &from, DELETES).is_nothing());
        assert_eq!(shown(&between(&from, &to, DELETES).removed), "only");
    }

    #[test]
    fn permissions_alone_are_set_or_the_file_is_sent() {
        let (from, to) = (["f x 3 10 755", "d d 0 1 555"], ["f x 3 10 644"]);
        let decision = between(&from, &to, RULES);
        assert_eq!(shown(&decision.files), "");
        assert_eq!(decision.modes, [(b"d".to_vec(), 0o555), (b"x".to_vec(), 0o755)]);
        let decision = between(&from, &to, Rules { changes_modes: false, ..RULES });
        assert_eq!(shown(&decision.files), "x");
        assert!(between(&["f x 3 10 666"], &to, Rules { kept_mode: 0o755, ..RULES }).is_nothing());
    }

    #[test]
    fn a_folder_is_deleted_whole_unless_something_in_it_is_excluded() {
        let to = ["d old", "f old/a 1 1", "d old/b", "f old/b/c 1 1", "d half", "f half/x.log 1 1", "f half/y 1 1"];
        let decision = decide(&tree(&[], &["*.log"]), &tree(&to, &["*.log"]), DELETES, &BTreeSet::new());
        assert_eq!(shown(&decision.removed), "half/y old");
        assert_eq!(decision.removed_count, 5);
    }

    #[test]
    fn what_is_in_the_way_is_removed_only_where_deleting_is_allowed() {
        let from = ["d a", "f a/x 1 1", "f b 1 1"];
        let to = ["l a /etc", "d b", "f b/y 1 1"];
        let decision = between(&from, &to, RULES);
        assert_eq!(decision.in_the_way, ["a is a link", "b is a folder"]);
        let decision = between(&from, &to, DELETES);
        assert_eq!(shown(&decision.removed_first), "a b");
        assert_eq!((shown(&decision.folders), shown(&decision.files)), ("a".to_owned(), "a/x b".to_owned()));
        assert_eq!((shown(&decision.removed), decision.in_the_way.len()), (String::new(), 0));
        // A link or a pipe is replaced by a rename, which follows nothing.
        assert_eq!(shown(&between(&["f a 1 1"], &["l a /etc/passwd"], RULES).files), "a");
    }

    #[test]
    fn contents_decide_where_they_are_asked() {
        let (from, to) = (["f x 3 10", "f y 3 10", "f z 3 10"], ["f x 3 99", "f y 3 10", "f z 4 10"]);
        let (from, to) = (tree(&from, &[]), tree(&to, &[]));
        assert_eq!(candidates(&from, &to), [b"x".to_vec(), b"y".to_vec()]);
        let same = BTreeSet::from([b"x".to_vec()]);
        let decision = decide(&from, &to, Rules { by_content: true, ..RULES }, &same);
        assert_eq!(shown(&decision.files), "y z");
    }
}
