//! Positions of a spec's keys and values in its file, and how errors show them.

use std::collections::BTreeMap;

use super::node::{Mark, Node, NodeKind};
use crate::error::{Error, ErrorKind};
pub(super) use crate::provider::settings::join;

/// The maximum number of errors shown at once.
const MOST_SHOWN: usize = 20;
/// The maximum number of characters shown of a line.
const MOST_COLUMNS: usize = 110;

/// One problem in a spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    /// The field: `ray.workers.cpus`; empty for the spec as a whole.
    pub(super) path: String,
    /// What is wrong with it.
    pub(super) message: String,
    /// Additional notes, one line each.
    pub(super) notes: Vec<String>,
    /// The position, if it does not follow from the path.
    pub(super) mark: Option<Mark>,
    /// The key is wrong, not its value.
    pub(super) is_key: bool,
    /// The path that the user probably meant.
    pub(super) meant: Option<String>,
}

impl Problem {
    /// A problem at the position of its path.
    pub(super) fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into(), notes: Vec::new(), mark: None, is_key: false, meant: None }
    }

    /// A problem at an explicit position.
    pub(super) fn at(mark: Mark, path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { mark: Some(mark), ..Self::new(path, message) }
    }

    /// A problem with a key rather than its value.
    pub(super) fn of_key(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { is_key: true, ..Self::new(path, message) }
    }

    /// Adds a line below the excerpt.
    pub(super) fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }
}

/// The path of a list item.
pub(super) fn item(path: &str, index: usize) -> String {
    format!("{path}[{index}]")
}

/// Whether a path equals another one or is below it.
pub(super) fn is_within(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| above.is_empty() || rest.is_empty() || rest.starts_with(['.', '[']))
}

/// The positions of a spec's keys and values in its file.
///
/// It is kept after loading, so that errors found later, against the facts of a host, are also shown at their line.
#[derive(Debug, Clone)]
pub struct Places {
    file: String,
    text: String,
    marks: BTreeMap<String, Mark>,
    keys: BTreeMap<String, Mark>,
}

impl Places {
    /// Creates the positions of a text that is not parsed yet.
    pub(super) fn of_text(file: &str, text: &str) -> Self {
        Self { file: file.to_owned(), text: without_webhooks(text), marks: BTreeMap::new(), keys: BTreeMap::new() }
    }

    /// Adds the positions of everything in the tree.
    pub(super) fn add(&mut self, root: &Node) {
        self.marks.insert(String::new(), Mark { length: 0, ..root.at });
        self.add_below(root, "");
    }

    fn add_below(&mut self, node: &Node, path: &str) {
        match &node.kind {
            NodeKind::Scalar { .. } => {}
            NodeKind::List(items) => {
                for (index, child) in items.iter().enumerate() {
                    let path = item(path, index);
                    self.marks.insert(path.clone(), Mark { length: child.at.length.max(1), ..child.at });
                    self.add_below(child, &path);
                }
            }
            NodeKind::Map(entries) => {
                for (key, child) in entries {
                    let path = join(path, &key.text);
                    // A problem with a value is shown at the value, unless it spans several lines.
                    let is_short = matches!(child.kind, NodeKind::Scalar { .. }) && child.at.length > 0;
                    self.marks.insert(path.clone(), if is_short { child.at } else { key.at });
                    self.keys.insert(path.clone(), key.at);
                    self.add_below(child, &path);
                }
            }
        }
    }

    /// The file's name, as it was given.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The line and column, from 1, of the value at a path such as `ray.workers.cpus` or `hosts[0].node`; of its
    /// nearest parent if the file does not have it.
    pub fn position(&self, path: &str) -> (usize, usize) {
        let mark = self.mark(path);
        (mark.line, mark.column)
    }

    fn mark_of(&self, problem: &Problem) -> Mark {
        let key = self.keys.get(&problem.path).filter(|_| problem.is_key);
        problem.mark.or(key.copied()).unwrap_or_else(|| self.mark(&problem.path))
    }

    fn mark(&self, path: &str) -> Mark {
        let mut above = path;
        loop {
            if let Some(mark) = self.marks.get(above) {
                return *mark;
            }
            match above.rfind(['.', '[']) {
                Some(cut) => above = &above[..cut],
                None if above.is_empty() => {
                    return Mark { line: 1, column: 1, length: 0 };
                }
                None => above = "",
            }
        }
    }

    /// An error about the value at a path such as `ray.workers.cpus` or `hosts[0].node`, shown at its line.
    ///
    /// Paths that the file does not have (a default, a missing key) are shown at their nearest parent.
    pub fn error(&self, path: &str, message: impl Into<String>) -> Error {
        self.all(vec![Problem::new(path, message)])
    }

    /// One error about several values, each with its path and what is wrong with it, as [`Self::error`] shows one.
    pub fn errors(&self, wrong: Vec<(String, String)>) -> Error {
        self.all(wrong.into_iter().map(|(path, message)| Problem::new(path, message)).collect())
    }

    /// One error with all problems, in the order of the file.
    pub(super) fn all(&self, mut problems: Vec<Problem>) -> Error {
        problems.sort_by_key(|problem| {
            let mark = self.mark_of(problem);
            (mark.line, mark.column)
        });
        // YAML's line breaks: LF, CR LF, or CR alone.
        let text = self.text.replace("\r\n", "\n").replace('\r', "\n");
        let lines: Vec<&str> = text.split('\n').collect();
        let mut blocks: Vec<String> =
            problems.iter().take(MOST_SHOWN).map(|problem| self.block(problem, &lines)).collect();
        if problems.len() > MOST_SHOWN {
            blocks.push(format!("  and {} more", problems.len() - MOST_SHOWN));
        }
        Error::new(ErrorKind::Spec, format!("read the spec {}", self.file)).snippet(blocks.join("\n\n"))
    }

    fn block(&self, problem: &Problem, lines: &[&str]) -> String {
        let mark = self.mark_of(problem);
        // A URL in the place of a key is one all the same.
        let is_of_webhook = is_within(&problem.path, "notify.webhook");
        let path = if is_of_webhook { without_paths(&problem.path) } else { problem.path.clone() };
        let field = if path.is_empty() { String::new() } else { format!("{path}: ") };
        let message = printable(&problem.message);
        let mut text = format!("  {}:{}:{}: {field}{message}", self.file, mark.line, mark.column);
        if let Some(line) = lines.get(mark.line.wrapping_sub(1)).filter(|line| !line.trim().is_empty()) {
            let (shown, indent, carets) = excerpt(line, mark);
            text.push_str(&format!("\n  {:>4} | {}", mark.line, shown.trim_end()));
            text.push_str(&format!("\n       | {}{}", " ".repeat(indent), "^".repeat(carets)));
        }
        for note in &problem.notes {
            text.push_str(&format!("\n  {}", printable(note)));
        }
        text
    }
}

/// The text without what follows the hosts in URLs of webhooks: whoever knows one can write there, and errors show lines of
/// the file. All columns stay.
fn without_webhooks(text: &str) -> String {
    let mut is_below = false;
    let hidden = |line: &str| {
        let is_of_webhook = line.contains("webhook");
        let hides = std::mem::replace(&mut is_below, is_of_webhook) || is_of_webhook;
        if hides { without_paths(line) } else { line.to_owned() }
    };
    text.split_inclusive(['\n', '\r']).map(hidden).collect()
}

/// The line with asterisks for what is not scheme and host of a URL in it.
fn without_paths(line: &str) -> String {
    let ends_word = |letter: char| letter.is_whitespace() || "'\",{}[]".contains(letter);
    let stars = |text: &str| "*".repeat(text.chars().count());
    let hidden = |word: &str| {
        let end = word.find(ends_word).unwrap_or(word.len());
        let (word, after) = word.split_at(end);
        let (scheme, rest) = word.split_at(word.find("://").map_or(0, |at| at + 3));
        let (place, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let host = if path.contains('@') { place.len() } else { place.rfind('@').map_or(0, |at| at + 1) };
        format!("{scheme}{}{}{}{after}", stars(&place[..host]), &place[host..], stars(path))
    };
    line.split_inclusive(ends_word).map(hidden).collect()
}

/// The text with control characters replaced by spaces; a tab would shift the caret.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// The part of a line that fits, the column of the caret within it, and the number of carets.
fn excerpt(line: &str, mark: Mark) -> (String, usize, usize) {
    let clean: Vec<char> = printable(line).chars().collect();
    let column = (mark.column - 1).min(clean.len());
    let from = if clean.len() <= MOST_COLUMNS { 0 } else { column.saturating_sub(MOST_COLUMNS / 2) };
    let to = (from + MOST_COLUMNS).min(clean.len());
    let mut shown: String = clean[from..to].iter().collect();
    let mut indent = column - from;
    if from > 0 {
        shown.insert_str(0, "… ");
        indent += 2;
    }
    if to < clean.len() {
        shown.push_str(" …");
    }
    (shown, indent, mark.length.clamp(1, (to - column).max(1)))
}
