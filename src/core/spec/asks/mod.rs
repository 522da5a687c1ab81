//! What a spec asks of its reader beyond an ordinary cluster: programs that run on the reader's machine, files that leave
//! it, servers that only the spec names, privileges on machines that outlive the cluster. An ordinary spec asks nothing.
//!
//! Specs are shared between people. So every key says in its schema what it may ask: a structure lists the keys that ask
//! nothing (`asks_nothing`), and each other key has a [`Rule`] (`asks`). A key with neither is a mistake that a test
//! finds. The walk over schema and spec is here and nowhere else; it reads no file and contacts nobody.

mod rules;
mod walk;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use self::rules::{Reader, compose, texts};
use self::walk::{Rule, Special};
pub use self::walk::{classified, unclassified};
use super::Loaded;
use super::place::is_within;
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::provider::Lookup;
use crate::util::digest;
use crate::util::fs::resolve;
use crate::util::text::printable_line;

/// What kind of thing is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// A program runs on the reader's machine.
    Runs,
    /// Files or secrets of the reader's machine leave it.
    Sends,
    /// A server that only the spec names is contacted as the reader.
    Server,
    /// Something of a machine or platform that outlives the cluster is used or changed.
    Privilege,
    /// Files that are there are written over.
    Overwrites,
    /// Parts of gpucl are replaced.
    Replaces,
}

impl Class {
    /// What all of this class have in common, in words.
    pub fn heading(self) -> &'static str {
        match self {
            Self::Runs => "runs on this machine",
            Self::Sends => "sends from this machine",
            Self::Server => "contacts, as you",
            Self::Privilege => "takes, of what outlives the cluster",
            Self::Overwrites => "writes over",
            Self::Replaces => "replaces parts of gpucl",
        }
    }
}

/// One thing that is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ask {
    /// Whether it runs, sends, overwrites, and so on.
    pub class: Class,
    /// The key of the spec, or the file, that asks.
    pub place: String,
    /// What happens, in words.
    pub what: String,
    /// Planning would already do it.
    pub before_plan: bool,
    /// The digest of what is asked: the value, and the content of what is run or merged.
    pub digest: String,
}

impl Ask {
    /// Creates one; `content` is what must stay the same for an answer to hold.
    pub fn new(class: Class, place: &str, what: &str, before_plan: bool, content: &impl Serialize) -> Self {
        let what = one_line(what);
        let digest = digest::whole_of_json(&(class, content));
        Self { class, place: one_line(place), what, before_plan, digest }
    }
}

/// The text as one line, in letters that can be seen, and whole: nothing hides behind a cut.
fn one_line(text: &str) -> String {
    printable_line(text)
        .chars()
        .map(|letter| match is_unseen(letter) {
            true => format!("\\u{{{:x}}}", u32::from(letter)),
            false => letter.to_string(),
        })
        .collect()
}

/// Whether a letter takes no room, or changes the order of others.
fn is_unseen(letter: char) -> bool {
    matches!(letter,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' | '\u{fe00}'..='\u{fe0f}'
        | '\u{e0000}'..='\u{e0fff}')
}

/// How many digits of a list's digest are shown: whoever writes a spec could otherwise look for two lists with one digest.
const DIGITS: usize = 40;

/// The digest of a whole list, which `--accept` takes. The order and the places in the file do not matter.
pub fn digest_of(asks: &[Ask]) -> String {
    let mut all: Vec<&str> = asks.iter().map(|ask| ask.digest.as_str()).collect();
    all.sort_unstable();
    all.dedup();
    digest::whole_of_json(&all)[..DIGITS].to_owned()
}

/// Whose machine it is.
#[derive(Debug, Clone, Copy)]
pub struct Home<'a> {
    /// The reader's home folder.
    pub home: &'a Path,
    /// The folder of the spec.
    pub folder: &'a Path,
    /// Folders that the reader lets the spec send from.
    pub allowed: &'a [PathBuf],
}

/// Everything that a spec asks for, in the order of its keys.
///
/// # Errors
/// If the provider is unknown, or a file that decides cannot be read.
pub fn asks(loaded: &Loaded, home: Home<'_>, lookup: Lookup<'_>) -> Result<Vec<Ask>> {
    let spec = &loaded.spec;
    let factory = lookup(spec.provider.name())?;
    let reader = Reader { home, factory, spec };
    let mut asks = Vec::new();
    let core = serde_json::to_value(spec).unwrap_or_default();
    for (schema, value, path) in [
        (super::schema::own().clone(), core, String::new()),
        (factory.settings_schema().to_value(), spec.provider.settings(), "provider".to_owned()),
    ]
    .into_iter()
    .chain(
        spec.hosts
            .iter()
            .enumerate()
            .map(|(index, host)| (factory.host_schema().to_value(), host.clone(), format!("hosts[{index}]"))),
    ) {
        for found in walk::found(&schema, &value, &path) {
            reader.judge(&found, &mut asks)?;
        }
    }
    compose(&reader, &mut asks);
    texts(&reader, &mut asks)?;
    for ask in &mut asks {
        // An answer holds for where things go, and, on the reader's own machine, for all that a command may find there.
        ask.digest = match ask.class {
            Class::Sends | Class::Privilege | Class::Overwrites => {
                digest::whole_of_json(&(&ask.digest, reader.destination()))
            }
            Class::Runs => digest::whole_of_json(&(&ask.digest, reader.found_here())),
            Class::Server | Class::Replaces => continue,
        };
    }
    Ok(joined(asks))
}

/// Makes the paths of the reader's logins and keys absolute, from the spec's folder: later commands read them again,
/// possibly from another folder, and programs are started in none of the reader's. A file is judged and opened by one path.
///
/// # Errors
/// If the working folder cannot be found.
pub fn with_whole_paths(loaded: &mut Loaded, home: &Path, folder: &Path, lookup: Lookup<'_>) -> Result<()> {
    let Ok(factory) = lookup(loaded.spec.provider.name()) else { return Ok(()) };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let folder = std::path::absolute(folder).doing(ErrorKind::Usage, || format!("find {}", folder.display()))?;
    let whole = |schema: &Value, entries: &mut Map<String, Value>| -> Result<()> {
        for found in walk::found(schema, &Value::Object(entries.clone()), "") {
            let Some(file) = found.value.as_str().filter(|file| !file.is_empty()) else { continue };
            let Rule::Special { rule: rule @ (Special::Login | Special::Key) } = found.rule else { continue };
            let (file, is_key) = (whole_path(home, &folder, file)?, rule == Special::Key);
            // Whoever opens a pipe waits for ever.
            if fs_err::metadata(&file).is_ok_and(|data| !data.is_file()) {
                let doing = format!("use {} as `{}`", file.display(), found.path);
                return Err(Error::new(ErrorKind::Spec, doing).because("only regular files are read"));
            }
            // `ssh` finds the home by itself.
            if is_key && found.value.as_str().is_some_and(|named| named.starts_with('~')) {
                continue;
            }
            if let Some(value) = entries.get_mut(&found.path) {
                *value = Value::String(file.display().to_string());
            }
        }
        Ok(())
    };
    if let super::ProviderChoice::Full { settings, .. } = &mut loaded.spec.provider {
        whole(&factory.settings_schema().to_value(), settings)?;
    }
    let schema = factory.host_schema().to_value();
    loaded.spec.hosts.iter_mut().filter_map(Value::as_object_mut).try_for_each(|host| whole(&schema, host))
}

/// The path of a file that a spec in this folder names, in its real folder; `~` is the home. The file itself may be a link,
/// beside which paths in it are found.
fn whole_path(home: &Path, folder: &Path, file: &str) -> Result<PathBuf> {
    let path = folder.join(super::beside::in_home(home, file));
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Ok(path) };
    let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
    let found = resolve(above).doing(ErrorKind::Spec, || format!("find {}", path.display()))?;
    Ok(found.map_or_else(|| path.clone(), |above| above.join(name)))
}

/// Joins those of one class that belong to one entry: commands of one data set, packages and commands of `setup`.
fn joined(asks: Vec<Ask>) -> Vec<Ask> {
    let entry = |place: &str| place.split('.').next().unwrap_or_default().to_owned();
    let mut all: Vec<Ask> = Vec::new();
    for ask in asks {
        let same = |last: &&mut Ask| {
            last.class == Class::Runs && ask.class == Class::Runs && is_within(&ask.place, &entry(&last.place))
        };
        match all.last_mut().filter(same) {
            Some(last) => {
                last.place = entry(&last.place);
                last.what = format!("{}; {}", last.what, ask.what);
                last.digest = digest::whole_of_json(&(&last.digest, &ask.digest));
                last.before_plan |= ask.before_plan;
            }
            None => all.push(ask),
        }
    }
    all
}

#[cfg(test)]
mod tests;
