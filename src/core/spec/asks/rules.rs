//! What a key's value asks, by its rule.

use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use super::walk::{Found, On, Rule, Says, Special};
use super::{Ask, Class, Home};
use crate::error::{Doing as _, ErrorKind, Result};
use crate::provider::Capability;
use crate::spec::Spec;
use crate::spec::compose::{Beyond, beyond};
use crate::spec::mounts::sensitive;
use crate::spec::variables::is_ordinary;
use crate::util::digest;
use crate::util::fs::{RECORD_LIMIT, read_within};

/// Folders of a home where things of many origins lie.
const SHARED: &[&str] = &["", "Desktop", "Documents", "Downloads"];

/// A reader and the spec.
pub(super) struct Reader<'a> {
    pub(super) home: Home<'a>,
    pub(super) capability: Capability,
    pub(super) spec: &'a Spec,
}

impl Reader<'_> {
    /// Adds what a key asks.
    pub(super) fn judge(&self, found: &Found, asks: &mut Vec<Ask>) -> Result<()> {
        let Found { path, rule, value } = found;
        match rule {
            Rule::Says(says) => asks.extend(self.said(says, path, value)),
            Rule::Flag { .. } => {}
            Rule::Special { rule } => match rule {
                Special::Compose | Special::Key => {}
                Special::Files => asks.extend(self.files(path, value)),
                Special::Git => asks.extend(git(path, value)),
                Special::Environment => self.environment(path, value, asks),
                Special::Login => asks.extend(self.login(path, value)?),
                Special::Store => asks.extend(store(path, value)),
                Special::HostFolder => asks.extend(self.host_folder(path, value)),
                Special::SavedTo => asks.extend(saved_to(path, value)),
            },
        }
        Ok(())
    }

    fn is_on(&self, on: On) -> bool {
        match on {
            On::All => true,
            On::Here => self.capability.is_here || self.spec.hosts.iter().any(is_loopback),
            On::Outliving => !self.capability.hosts_vanish,
        }
    }

    fn said(&self, says: &Says, path: &str, value: &Value) -> Option<Ask> {
        let is_asked = is_set(value) || says.unless.iter().any(|other| other.is_boolean() && value.is_boolean());
        let asks = self.is_on(says.on) && is_asked && !says.unless.contains(value);
        let what = says.says.replace("{}", &words(value));
        asks.then(|| Ask::new(says.class, path, &what, says.before_plan, &(&says.says, value)))
    }

    /// Whether a folder is one where things of many origins lie, or has such a folder in it.
    fn is_shared(&self, folder: &Path) -> bool {
        let home = real(self.home.home);
        let is_temporary = ["/tmp", "/var/tmp", "/dev/shm"].iter().any(|shared| folder == Path::new(shared));
        is_temporary || home.starts_with(folder) || SHARED.iter().any(|name| folder == home.join(name))
    }

    /// Files that are sent: ordinary in a folder of the spec's own, unless they are hidden.
    fn files(&self, path: &str, value: &Value) -> Option<Ask> {
        let named = value.as_str()?;
        let folder = real(if self.home.folder.as_os_str().is_empty() { Path::new(".") } else { self.home.folder });
        let source = real(&folder.join(named));
        if self.home.allowed.iter().any(|allowed| source.starts_with(real(allowed))) {
            return None;
        }
        let is_folder = source.is_dir();
        let is_hidden = source
            .strip_prefix(&folder)
            .unwrap_or(&source)
            .components()
            .any(|part| matches!(part, Component::Normal(name) if name.as_encoded_bytes().starts_with(b".")));
        let why = if is_folder && self.is_shared(&source) {
            "all that lies in"
        } else if is_hidden {
            "the hidden"
        } else if !is_folder && source.parent().is_some_and(|parent| real(self.home.home) == parent) {
            "of your home folder,"
        } else {
            return None;
        };
        let what = format!("{why} {}", source.display());
        Some(Ask::new(Class::Sends, path, &what, true, &source.display().to_string()))
    }

    /// Variables of nodes on the reader's own machine.
    fn environment(&self, path: &str, value: &Value, asks: &mut Vec<Ask>) {
        if !self.is_on(On::Here) {
            return;
        }
        for (name, value) in value.as_object().into_iter().flatten() {
            if !is_ordinary(name) {
                let what = format!("all nodes and jobs with the variable {name}={}", words(value));
                asks.push(Ask::new(Class::Runs, path, &what, false, &(name, value)));
            }
        }
    }

    /// A file that says who the reader is, and to whom: one of the reader's own asks nothing.
    fn login(&self, path: &str, value: &Value) -> Result<Option<Ask>> {
        let Some(named) = value.as_str().filter(|named| !named.is_empty()) else { return Ok(None) };
        let file = real(&match named.strip_prefix("~/") {
            Some(rest) => self.home.home.join(rest),
            None => self.home.folder.join(named),
        });
        if file.starts_with(real(&self.home.home.join(".kube"))) && !self.home.home.as_os_str().is_empty() {
            return Ok(None);
        }
        let content = match read_within(&file, RECORD_LIMIT) {
            Ok(bytes) => digest::short(&bytes),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => "missing".to_owned(),
            Err(error) => return Err(error).doing(ErrorKind::Spec, || format!("read {}", file.display())),
        };
        let what = format!("what {} says, to log in to the server that it names", file.display());
        Ok(Some(Ask::new(Class::Runs, path, &what, true, &(file.display().to_string(), content))))
    }

    fn host_folder(&self, path: &str, value: &Value) -> Option<Ask> {
        let folder = value.as_str()?;
        let why = sensitive(folder).filter(|_| self.is_on(On::Outliving))?;
        Some(Ask::new(Class::Privilege, path, &format!("{folder} of a host, which {why}"), false, value))
    }
}

/// Keys of an existing store are sent to the hosts, and used at an address of the spec's.
fn store(path: &str, value: &Value) -> Option<Ask> {
    let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
    let (file, profile, endpoint) = (text("credentials_file"), text("profile"), text("endpoint"));
    let what = format!("the keys of `{profile}` in {file}, to the hosts, for {endpoint}");
    is_set(value).then(|| Ask::new(Class::Sends, path, &what, false, &(file, profile, endpoint)))
}

/// The server of a repository is asked with the reader's own git, and so with its logins.
fn git(path: &str, value: &Value) -> Option<Ask> {
    let url = value.as_str()?;
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let server = rest.split('/').next().unwrap_or_default();
    let server = server.rsplit_once('@').map_or(server, |(_, server)| server);
    Some(Ask::new(Class::Server, path, &format!("{server}, by git, for {url}"), false, &url))
}

/// A folder that outlives the cluster: a hidden one, or the home itself, has the reader's own settings and keys.
pub(super) fn saved_to(path: &str, value: &Value) -> Option<Ask> {
    let folder = value.as_str()?;
    let mut parts = folder.split('/').filter(|part| !part.is_empty());
    let is_home = matches!(folder.trim_end_matches('/'), "~" | "" | "/root" | "/home")
        || folder.strip_prefix("/home/").is_some_and(|rest| rest.trim_matches('/').split('/').count() == 1);
    let asks = is_home || parts.any(|part| part.starts_with('.'));
    asks.then(|| Ask::new(Class::Overwrites, path, &format!("files in {folder}, from the cluster"), false, value))
}

/// What compose files have beyond ordinary services; each item holds for the content of its file.
pub(super) fn compose(reader: &Reader<'_>, asks: &mut Vec<Ask>) {
    if !reader.is_on(On::Outliving) {
        return;
    }
    for file in &reader.spec.compose {
        // Files were read with the spec; one that cannot be understood now is never passed silently.
        let found = beyond(&file.text).unwrap_or_else(|why| vec![Beyond::of_file(format!("the file {why}"))]);
        for Beyond { place, what } in found {
            let at = format!("{}, {place}", file.path);
            asks.push(Ask::new(Class::Privilege, &at, &what, false, &(&file.text, &place)));
        }
    }
}

/// Whether an entry of `hosts:` names this machine.
fn is_loopback(host: &Value) -> bool {
    let node = host.get("node").unwrap_or(host).as_str().unwrap_or_default().to_ascii_lowercase();
    let node = node.trim_matches(['[', ']', '.']);
    node == "localhost" || node.ends_with(".localhost") || node == "::1" || node.starts_with("127.") || node == "0"
}

/// The path with its links followed, as far as it exists.
fn real(path: &Path) -> PathBuf {
    fs_err::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

fn is_set(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(entries) => !entries.is_empty(),
        Value::Bool(true) | Value::Number(_) => true,
    }
}

/// A value in words: the names of a map, the items of a list.
fn words(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(words).collect::<Vec<_>>().join(", "),
        Value::Object(entries) => match entries.get("path") {
            Some(path) => words(path),
            None => {
                entries.iter().map(|(name, value)| format!("{name}={}", words(value))).collect::<Vec<_>>().join(", ")
            }
        },
        other => other.to_string(),
    }
}
