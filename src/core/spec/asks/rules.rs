//! What a key's value asks, by its rule.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::{Component, Path, PathBuf};

use serde_json::{Value, json};

use super::walk::{KeyWithRule, On, Rule, Says, Special};
use super::{Ask, Class, Home, whole_path};
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::provider::{Capability, Factory};
use crate::spec::Spec;
use crate::spec::compose::{Beyond, beyond, beyond_with_mlflow};
use crate::spec::sensitive::sensitive;
use crate::spec::variables::is_ordinary;
use crate::util::digest;
use crate::util::fence::is_shared;
use crate::util::fs::{RECORD_LIMIT, read_within, resolve};

/// The largest program or script whose content is part of an answer, in bytes.
const MOST_OF_A_PROGRAM: u64 = 1 << 30;

/// A reader and the spec.
pub(super) struct Reader<'a> {
    pub(super) home: Home<'a>,
    pub(super) factory: &'a dyn Factory,
    pub(super) spec: &'a Spec,
}

impl Reader<'_> {
    /// Adds what a key asks.
    pub(super) fn judge(&self, found: &KeyWithRule, asks: &mut Vec<Ask>) -> Result<()> {
        let KeyWithRule { path, rule, value } = found;
        match rule {
            Rule::Says(says) => asks.extend(self.said(says, path, value)),
            Rule::Flag { .. } => {}
            Rule::Special { rule } => match rule {
                Special::Compose | Special::Key => {}
                Special::Files => asks.extend(self.files(path, value)?),
                Special::Git => asks.extend(git(path, value)),
                Special::Environment => self.environment(path, value, asks),
                Special::Login => asks.extend(self.login(path, value)?),
                Special::Store => asks.extend(store(path, value)),
                Special::Tracking => asks.extend(tracking(path, value)),
                Special::HostFolder => asks.extend(self.host_folder(path, value)),
                Special::Modules => asks.extend(modules(path, value)),
                Special::SavedTo => asks.extend(saved_to(path, value)),
                Special::Webhook => asks.extend(self.webhook(path)),
                Special::NotifyCommand => asks.extend(self.notify_command(path)),
            },
        }
        Ok(())
    }

    fn is_on(&self, on: On) -> bool {
        let Capability { is_here, hosts_vanish, .. } = self.factory.capability();
        match on {
            On::All => true,
            On::Here => is_here || self.spec.hosts.iter().any(is_loopback),
            On::Outliving => !hosts_vanish,
        }
    }

    fn said(&self, says: &Says, path: &str, value: &Value) -> Option<Ask> {
        let is_asked = is_set(value) || says.unless.iter().any(|other| other.is_boolean() && value.is_boolean());
        let asks = self.is_on(says.on) && is_asked && !says.unless.contains(value);
        let what = says.says.replace("{}", &words(value));
        asks.then(|| Ask::new(says.class, path, &what, says.before_plan, &(&says.says, value)))
    }

    /// What the spec says of where the cluster is.
    pub(super) fn destination(&self) -> Value {
        let settings = self.spec.provider.settings();
        let keys = [
            "context",
            "namespace",
            "kubeconfig",
            "host",
            "endpoint",
            "site",
            "project",
            "user",
            "port",
            "ssh_port",
            "identity_file",
        ];
        let named: Vec<&Value> = keys.iter().map(|key| &settings[*key]).collect();
        json!([self.spec.provider.name(), self.spec.hosts, named])
    }

    /// What commands on the reader's own machine may find there beside themselves; the content of files of the folder is
    /// not part of it.
    pub(super) fn found_here(&self) -> Value {
        match self.is_on(On::Here) {
            true => {
                // In any order: to move an entry asks nothing again.
                let files = self.spec.files.iter().map(|file| json!(file).to_string());
                let mut all: Vec<String> =
                    files.chain(self.spec.data.iter().map(|data| json!(data).to_string())).collect();
                all.sort();
                json!([all, self.spec.setup])
            }
            false => Value::Null,
        }
    }

    /// Files that are sent: ordinary in a folder of the spec's own, unless they are hidden.
    fn files(&self, path: &str, value: &Value) -> Result<Option<Ask>> {
        let Some(named) = value.as_str() else { return Ok(None) };
        let folder = real(if self.home.folder.as_os_str().is_empty() { Path::new(".") } else { self.home.folder })?;
        let source = real(&folder.join(named))?;
        for allowed in self.home.allowed {
            if source.starts_with(real(allowed)?) {
                return Ok(None);
            }
        }
        let is_folder = source.is_dir();
        let is_hidden = source
            .strip_prefix(&folder)
            .unwrap_or(&source)
            .components()
            .any(|part| matches!(part, Component::Normal(name) if name.as_encoded_bytes().starts_with(b".")));
        let why = if is_folder && is_shared(&source, self.home.home) {
            "all that lies in"
        } else if is_hidden {
            "the hidden"
        } else if is_shared(&folder, self.home.home) {
            // The spec itself lies where things of many origins lie: saved from a browser, say.
            "beside the spec, in a folder of many things,"
        } else {
            return Ok(None);
        };
        let what = format!("{why} {}", source.display());
        Ok(Some(Ask::new(Class::Sends, path, &what, true, &source.display().to_string())))
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
        let file = whole_path(self.home.home, self.home.folder, named)?;
        let own = self.home.home.join(".kube");
        // And not by a link from another folder, which relative paths in it would be relative to.
        let is_own = file.starts_with(&own) && file.is_file() && real(&file)?.starts_with(real(&own)?);
        if is_own && !self.home.home.as_os_str().is_empty() {
            return Ok(None);
        }
        // As the provider reads it: another reader of YAML would see other things in it.
        let read = self.factory.login_file(&file)?;
        let what = format!("what {} says, to log in: {}", file.display(), read.says.join(", "));
        let bytes = read_within(&file, RECORD_LIMIT).unwrap_or_default();
        let programs = read.programs.iter().map(|program| content_of(program)).collect::<Result<Vec<_>>>()?;
        let content = (file.display().to_string(), digest::whole(&bytes), read.says, programs);
        Ok(Some(Ask::new(Class::Runs, path, &what, true, &content)))
    }

    /// News of the cluster, to a server that only the spec names. An answer holds for the whole URL, also for one in a file.
    fn webhook(&self, path: &str) -> Option<Ask> {
        let route = self.spec.notify.as_ref()?.route.as_ref()?;
        let what = format!("news of the cluster, without logs and secrets, to {}", route.place());
        Some(Ask::new(Class::Sends, path, &what, false, route))
    }

    /// A program that is given news of the cluster. An answer holds for the content of the files of the spec's folder that it
    /// names.
    fn notify_command(&self, path: &str) -> Option<Ask> {
        let notify = self.spec.notify.as_ref()?;
        let what = format!("`{}`, with news of the cluster, as long as that is there", notify.command.join(" "));
        (!notify.command.is_empty())
            .then(|| Ask::new(Class::Runs, path, &what, false, &(&notify.command, &notify.route)))
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

/// Jobs log to an existing server; its login is sent to the hosts, and by them to an address of the spec's.
fn tracking(path: &str, value: &Value) -> Option<Ask> {
    let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
    let (file, uri) = (text("credentials_file"), text("uri"));
    let what = match file {
        "" => format!("what jobs log to MLflow, to {uri}"),
        file => {
            let how = if is_readable_on_the_way(uri) { ", which anybody on the way can read" } else { "" };
            format!("the login of MLflow in {file}, to the hosts, for {uri}{how}")
        }
    };
    is_set(value).then(|| Ask::new(Class::Sends, path, &what, false, &(file, uri)))
}

/// Whether a URL leads over a network without encryption.
fn is_readable_on_the_way(uri: &str) -> bool {
    let host = uri.strip_prefix("http://").map(|rest| rest.split(['/', ':']).next().unwrap_or_default());
    host.is_some_and(|host| !matches!(host, "127.0.0.1" | "localhost"))
}

/// A program or script that exists, with a digest of its content; one that cannot be read, or not in a sensible time, could
/// change unseen.
fn content_of(path: &Path) -> Result<Option<(String, String)>> {
    let doing = || format!("read {}, which a login runs", path.display());
    match fs_err::metadata(path) {
        Ok(data) if data.is_file() && data.len() > MOST_OF_A_PROGRAM => {
            Err(Error::new(ErrorKind::Spec, doing()).because("it is larger than 1 GiB"))
        }
        Ok(data) if data.is_file() => {
            let digest = digest::of_file(path).doing(ErrorKind::Spec, doing)?;
            Ok(Some((path.display().to_string(), digest)))
        }
        _ => Ok(None),
    }
}

/// The server of a repository is asked with the reader's own git, and so with its logins.
fn git(path: &str, value: &Value) -> Option<Ask> {
    let url = value.as_str()?;
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let server = rest.split('/').next().unwrap_or_default();
    let server = server.rsplit_once('@').map_or(server, |(_, server)| server);
    Some(Ask::new(Class::Server, path, &format!("{server}, by git, for {url}"), false, &url))
}

/// Environment modules by the path of a file, which may be anybody's; those of the site have names.
fn modules(path: &str, value: &Value) -> Option<Ask> {
    let named: Vec<&str> = value.as_array()?.iter().filter_map(Value::as_str).collect();
    let files: Vec<&str> = named
        .into_iter()
        .filter(|name| name.starts_with(['/', '.', '~']) || name.split('/').any(|part| part == ".."))
        .collect();
    let what = format!("the modules of {}, loaded as you on the cluster", files.join(", "));
    (!files.is_empty()).then(|| Ask::new(Class::Privilege, path, &what, false, &files))
}

/// A folder that outlives the cluster: a hidden one, or the home itself, has the reader's own settings and keys.
pub(super) fn saved_to(path: &str, value: &Value) -> Option<Ask> {
    // A bucket is its store's to ask about; what is saved here goes into the spec's own folder.
    let folder = value.as_str().filter(|folder| !folder.starts_with("s3://") && !folder.starts_with("here:"))?;
    let parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    let is_of_homes = parts.first().is_some_and(|top| {
        top.starts_with("home")
            || ["root", "u", "users", "nfs", "gpfs", "net"].contains(&top.to_ascii_lowercase().as_str())
    });
    let is_home = parts.is_empty() || parts == ["~"] || (is_of_homes && parts.len() <= 3);
    let is_systems = parts.first().is_some_and(|top| ["bin", "boot", "etc", "lib", "sbin", "usr", "var"].contains(top));
    let has_programs = parts.contains(&"bin");
    let asks = is_home || is_systems || has_programs || parts.iter().any(|part| part.starts_with('.'));
    asks.then(|| Ask::new(Class::Overwrites, path, &format!("files in {folder}, from the cluster"), false, value))
}

/// Files whose text is sent: asked about where the spec itself lies in a folder of many things.
pub(super) fn texts(reader: &Reader<'_>, asks: &mut Vec<Ask>) -> Result<()> {
    let folder = reader.home.folder;
    let folder = real(if folder.as_os_str().is_empty() { Path::new(".") } else { folder })?;
    if !is_shared(&folder, reader.home.home) {
        return Ok(());
    }
    let requirements = reader.spec.setup.as_ref().and_then(|setup| setup.requirements.as_ref());
    let of_compose = reader.spec.compose.iter().map(|file| ("compose", &file.path));
    for (place, path) in of_compose.chain(requirements.map(|file| ("setup.requirements", &file.path))) {
        let what = format!("beside the spec, in a folder of many things, {}", folder.join(path).display());
        asks.push(Ask::new(Class::Sends, place, &what, true, path));
    }
    Ok(())
}

/// What compose files have beyond ordinary services; each item holds for the content of its file.
pub(super) fn compose(reader: &Reader<'_>, asks: &mut Vec<Ask>) {
    if !reader.is_on(On::Outliving) {
        return;
    }
    let beyond = if reader.spec.own_mlflow() { beyond_with_mlflow } else { beyond };
    for file in &reader.spec.compose {
        // Files were read with the spec; one that cannot be understood now is never passed silently.
        let found = beyond(&file.text).unwrap_or_else(|why| vec![Beyond::of_file(format!("the file {why}"))]);
        for Beyond { place, what } in found {
            let at = format!("{}, {place}", file.path);
            asks.push(Ask::new(Class::Privilege, &at, &what, false, &(&file.text, &place)));
        }
    }
}

/// Whether an entry of `hosts:` names this machine, in one of the ways in which `ssh` and the system read a name.
fn is_loopback(host: &Value) -> bool {
    let node = host.get("node").unwrap_or(host).as_str().unwrap_or_default().to_ascii_lowercase();
    let node = node.trim_matches(['[', ']', '.']).split('%').next().unwrap_or_default();
    let own = rustix::system::uname().nodename().to_string_lossy().to_ascii_lowercase();
    let is_own = !own.is_empty() && (node == own || node.split('.').next() == own.split('.').next());
    let is_this = |address: IpAddr| {
        let address = address.to_canonical();
        // Only an address of one's own can be listened at.
        address.is_loopback() || address.is_unspecified() || UdpSocket::bind((address, 0)).is_ok()
    };
    let is_address = match node.parse::<IpAddr>() {
        Ok(address) => is_this(address),
        Err(_) => old_form(node).is_some_and(|address| is_this(IpAddr::V4(address))),
    };
    is_address || is_own || node.starts_with("localhost") || node.ends_with(".localhost") || node.starts_with("ip6-")
}

/// An IPv4 address as the system's old reader takes it: one to four numbers, decimal, octal or hexadecimal.
fn old_form(text: &str) -> Option<Ipv4Addr> {
    let number = |part: &str| match part {
        part if part.starts_with("0x") => u32::from_str_radix(&part[2..], 16).ok(),
        part if part.len() > 1 && part.starts_with('0') => u32::from_str_radix(part, 8).ok(),
        part => part.parse().ok(),
    };
    let parts: Vec<u32> = text.split('.').map(number).collect::<Option<_>>()?;
    let (last, first) = parts.split_last().filter(|(_, first)| first.len() < 4)?;
    let high = first.iter().enumerate().map(|(index, part)| (part & 0xff) << (24 - 8 * index)).sum::<u32>();
    Some(Ipv4Addr::from(high | last))
}

/// The path with its links followed, or as it is where nothing is there.
fn real(path: &Path) -> Result<PathBuf> {
    let found = resolve(path).doing(ErrorKind::Spec, || format!("find {}", path.display()))?;
    Ok(found.unwrap_or_else(|| path.to_owned()))
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
        Value::Object(entries) => match (entries.get("path"), entries.get("text").and_then(Value::as_str)) {
            // A file that was read with the spec: what it says, not only its name.
            (Some(path), Some(text)) => format!("{} ({})", words(path), text.lines().collect::<Vec<_>>().join(", ")),
            (Some(path), None) => words(path),
            (None, _) => {
                entries.iter().map(|(name, value)| format!("{name}={}", words(value))).collect::<Vec<_>>().join(", ")
            }
        },
        other => other.to_string(),
    }
}
