//! What a compose file of the user has beyond an ordinary service: everything that is not in the lists of `lists.rs`.
//!
//! A service of its own may have what stays inside its container, on the cluster's network and on the host's loopback.
//! Of a service of gpucl's it may add resources, labels and variables, and change nothing.

mod lists;

use self::lists::{ADDED, EFFECTS, FIXED_VARIABLES, ORDINARY, RESOURCES, is_loopback, is_one_of, is_ours, is_volume};
use super::compose_text::{Part, read};
use super::node::shortened;
use super::place::{item, join};
use super::variables::is_our_variable;
use crate::util::text::printable_line;

/// Something in a compose file that an ordinary service does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Beyond {
    /// Where it is in the file: `services.web.privileged`.
    pub(super) place: String,
    /// What it does, as a short sentence that begins with the name of its service.
    pub(super) what: String,
}

impl Beyond {
    /// Something about a file as a whole.
    pub(super) fn of_file(what: String) -> Self {
        Self { place: String::new(), what }
    }
}

/// Everything in a compose file that is not in the lists of what an ordinary one has, or why it cannot be understood.
pub(super) fn beyond(text: &str) -> Result<Vec<Beyond>, String> {
    review(text, false)
}

/// The same beside an MLflow of gpucl's: the service of that name is not the user's own.
pub(super) fn beyond_with_mlflow(text: &str) -> Result<Vec<Beyond>, String> {
    review(text, true)
}

fn review(text: &str, has_mlflow: bool) -> Result<Vec<Beyond>, String> {
    let mut found = Review { all: Vec::new(), has_mlflow };
    for (key, value) in &read(text)? {
        match key.as_str() {
            "version" | "name" => {}
            "services" => found.services(value)?,
            "volumes" | "networks" | "configs" | "secrets" => found.section(key, value),
            "include" => found.add("include", "the file", "has settings from other files of its host"),
            key if key.starts_with("x-") => {}
            key => found.unknown(key, "the file", key),
        }
    }
    Ok(found.all)
}

/// What a compose file was found to have beyond the ordinary, so far.
struct Review {
    all: Vec<Beyond>,
    /// Whether gpucl has a service `mlflow`, which other clusters leave to the user.
    has_mlflow: bool,
}

impl Review {
    fn add(&mut self, place: &str, name: &str, what: &str) {
        let found = Beyond { place: place.to_owned(), what: format!("{name}: {what}") };
        if !self.all.contains(&found) {
            self.all.push(found);
        }
    }

    fn is_ours(&self, name: &str) -> bool {
        is_ours(name) || self.has_mlflow && name.eq_ignore_ascii_case("mlflow")
    }

    fn unknown(&mut self, place: &str, name: &str, key: &str) {
        match EFFECTS.iter().find(|(known, _)| *known == key) {
            Some((_, effect)) => self.add(place, name, effect),
            None => self.add(place, name, &format!("has `{}`, which is not known to be ordinary", shown(key))),
        }
    }

    /// The entries of a map, after those are noted that have other keys than these.
    fn only<'a>(&mut self, place: &str, name: &str, value: &'a Part, keys: &[&str]) -> Vec<(&'a str, &'a Part)> {
        let Part::Map(entries) = value else {
            if *value != Part::Nothing {
                self.add(place, name, "cannot be understood here");
            }
            return Vec::new();
        };
        for (key, _) in entries.iter().filter(|(key, value)| !keys.contains(&key.as_str()) && !is_unset(key, value)) {
            self.unknown(&join(place, key), name, key);
        }
        entries.iter().map(|(key, value)| (key.as_str(), value)).collect()
    }

    fn services(&mut self, services: &Part) -> Result<(), String> {
        if matches!(services, Part::Tagged(_)) {
            self.add("services", "the file", "replaces all services of gpucl");
        }
        let services = match services {
            Part::Tagged(inner) => inner,
            plain => plain,
        };
        let Part::Map(services) = services else {
            return Err("is not a compose file: its `services` is not a map".to_owned());
        };
        for (name, service) in services {
            if name.is_empty() || !name.chars().all(|letter| letter.is_ascii_alphanumeric() || "._-".contains(letter)) {
                return Err(format!("is not a compose file: `{}` is not the name of a service", shown(name)));
            }
            let (place, is_ours) = (join("services", name), self.is_ours(name));
            if is_ours && matches!(service, Part::Tagged(_)) {
                self.add(&place, name, "replaces this service of gpucl's");
            }
            let entries = match service {
                Part::Tagged(inner) => inner,
                plain => plain,
            };
            match entries {
                Part::Map(entries) => entries.iter().for_each(|(key, value)| self.setting(name, key, value, is_ours)),
                Part::Nothing => {}
                _ => self.add(&place, name, "cannot be understood here"),
            }
        }
        Ok(())
    }

    /// One setting of a service.
    fn setting(&mut self, name: &str, key: &str, value: &Part, is_ours: bool) {
        let place = join(&join("services", name), key);
        let (plain, before) = (value.untagged(), self.all.len());
        match key {
            key if ORDINARY.contains(&key) || RESOURCES.contains(&key) || is_unset(key, &plain) => {}
            "container_name" | "hostname" => self.host_name(&place, name, &plain),
            "deploy" => self.deploy(&place, name, &plain),
            "gpus" => self.gpus(&place, name, &plain),
            "labels" => self.labels(&place, name, &plain),
            "logging" => self.logging(&place, name, &plain),
            "networks" => self.networks(&place, name, &plain),
            "ports" => self.each(&place, &plain, |found, place, port| found.port(place, name, port)),
            "volumes" => self.each(&place, &plain, |found, place, volume| found.volume(place, name, volume)),
            "network_mode" if is_one_of(&plain, &["none"]) => {}
            "security_opt" if is_tighter(&plain) => {}
            key => self.unknown(&place, name, key),
        }
        let is_added = RESOURCES.contains(&key) || ADDED.contains(&key) || key.starts_with("x-");
        if is_ours && self.all.len() == before && (value.has_tag() || plain != Part::Nothing && !is_added) {
            self.add(&place, name, &format!("has another `{}` than gpucl gives it", shown(key)));
        } else if is_ours && key == "environment" {
            self.variables(&place, name, &plain);
        } else if is_ours && key == "deploy" && !is_limit(&plain) {
            self.add(&place, name, "is deployed in another way than gpucl does it");
        }
    }

    fn each(&mut self, place: &str, value: &Part, of: impl Fn(&mut Self, &str, &Part)) {
        match value {
            Part::List(items) => items.iter().enumerate().for_each(|(index, one)| of(self, &item(place, index), one)),
            other => of(self, place, other),
        }
    }

    fn host_name(&mut self, place: &str, name: &str, value: &Part) {
        if !matches!(value, Part::Text(text) if !text.contains('$') && !self.is_ours(text)) {
            self.add(place, name, "has a name that may be gpucl's own");
        }
    }

    fn labels(&mut self, place: &str, name: &str, value: &Part) {
        for label in self.names(place, name, value) {
            if ["gpucl", "com.docker."].iter().any(|ours| label.to_lowercase().starts_with(ours)) {
                self.add(place, name, &format!("has the label `{}`, by which containers are known", shown(&label)));
            }
        }
    }

    /// The variables of a service of gpucl's.
    fn variables(&mut self, place: &str, name: &str, value: &Part) {
        for variable in self.names(place, name, value) {
            let upper = variable.to_uppercase();
            if is_our_variable(&upper) || FIXED_VARIABLES.iter().any(|begin| upper.starts_with(begin)) {
                self.add(place, name, &format!("has another `{}` than gpucl gives it", shown(&variable)));
            }
        }
    }

    /// The names of a map, or of a list of `name=value`.
    fn names(&mut self, place: &str, name: &str, value: &Part) -> Vec<String> {
        let of_text = |text: &str| text.split('=').next().unwrap_or_default().to_owned();
        let names: Option<Vec<String>> = match value {
            Part::Nothing => Some(Vec::new()),
            Part::Map(entries) => return entries.iter().map(|(key, _)| key.clone()).collect(),
            Part::List(items) => {
                items.iter().map(|one| if let Part::Text(one) = one { Some(of_text(one)) } else { None }).collect()
            }
            _ => None,
        };
        // In a list, compose fills in variables before it looks for the `=`.
        names.filter(|names| !names.iter().any(|name| name.contains('$'))).unwrap_or_else(|| {
            self.add(place, name, "cannot be understood here");
            Vec::new()
        })
    }

    fn logging(&mut self, place: &str, name: &str, value: &Part) {
        for (key, value) in self.only(place, name, value, &["driver", "options"]) {
            if key == "driver" && !is_one_of(value, &["json-file", "local", "none"]) {
                self.add(&join(place, key), name, "sends its log to another place");
            }
        }
    }

    fn networks(&mut self, place: &str, name: &str, value: &Part) {
        let Part::Map(networks) = value else { return };
        for (network, value) in networks {
            let place = join(place, network);
            for (key, value) in self.only(&place, name, value, &["aliases", "priority", "gw_priority"]) {
                if key == "aliases" {
                    let place = join(&place, key);
                    self.each(&place, value, |found, place, alias| found.host_name(place, name, alias));
                }
            }
        }
    }

    fn port(&mut self, place: &str, name: &str, value: &Part) {
        let is_closed = match value {
            Part::Nothing => true,
            Part::Text(text) => match text.strip_prefix('[') {
                Some(rest) => {
                    rest.split_once("]:").is_some_and(|(host, ports)| is_loopback(host) && ports.contains(':'))
                }
                None => text.split_once(':').is_some_and(|(host, ports)| is_loopback(host) && ports.contains(':')),
            },
            Part::Map(_) => {
                let known = ["target", "published", "protocol", "mode", "name", "app_protocol", "host_ip"];
                let entries = self.only(place, name, value, &known);
                let mut hosts = entries.iter().filter(|(key, _)| *key == "host_ip").peekable();
                hosts.peek().is_some() && hosts.all(|(_, host)| matches!(host, Part::Text(host) if is_loopback(host)))
            }
            _ => false,
        };
        if !is_closed {
            self.add(place, name, &format!("is open to the network{}", quoted(value)));
        }
    }

    fn volume(&mut self, place: &str, name: &str, value: &Part) {
        let is_own = match value {
            Part::Nothing => true,
            Part::Text(text) if text.contains('$') => false,
            Part::Text(text) => match text.split_once(':') {
                Some((source, _)) => is_volume(source),
                None => text.starts_with('/'),
            },
            Part::Map(_) => {
                let known = ["type", "source", "target", "read_only", "volume", "tmpfs", "consistency"];
                let entries = self.only(place, name, value, &known);
                let is_good = |key: &str, value: &Part| match key {
                    "type" => is_one_of(value, &["volume", "tmpfs"]),
                    "source" => matches!(value, Part::Text(source) if is_volume(source)),
                    _ => true,
                };
                entries.iter().any(|(key, _)| *key == "type") && entries.iter().all(|(key, value)| is_good(key, value))
            }
            _ => false,
        };
        if !is_own {
            self.add(place, name, &format!("has a folder or file of its host{}", quoted(value)));
        }
    }

    fn deploy(&mut self, place: &str, name: &str, value: &Part) {
        let known = ["endpoint_mode", "labels", "mode", "replicas", "resources", "restart_policy", "update_config"];
        for (_, value) in self.only(place, name, value, &known).iter().filter(|(key, _)| *key == "resources") {
            let place = join(place, "resources");
            for (key, value) in self.only(&place, name, value, &["limits", "reservations"]) {
                let place = join(&place, key);
                let known: &[&str] =
                    if key == "limits" { &["cpus", "memory", "pids"] } else { &["cpus", "memory", "devices"] };
                for (key, value) in self.only(&place, name, value, known) {
                    if key == "devices" {
                        self.gpus(&join(&place, key), name, value);
                    }
                }
            }
        }
    }

    /// GPUs are what a cluster is for; other devices are not.
    fn gpus(&mut self, place: &str, name: &str, value: &Part) {
        const PARTS: &[&str] = &["compute", "display", "gpu", "graphics", "nvidia", "utility", "video"];
        if matches!(value, Part::Nothing | Part::Number(_)) || is_one_of(value, &["all"]) {
            return;
        }
        let is_gpu = |key: &str, value: &Part| match (key, value) {
            ("driver", value) => is_one_of(value, &["nvidia"]),
            ("capabilities", Part::List(parts)) => parts.iter().all(|part| is_one_of(part, PARTS)),
            ("capabilities", _) => false,
            _ => true,
        };
        self.each(place, value, |found, place, device| {
            let entries = found.only(place, name, device, &["driver", "count", "device_ids", "capabilities"]);
            if !entries.iter().all(|(key, value)| is_gpu(key, value)) {
                found.add(place, name, "has devices of its host");
            }
        });
    }

    /// Volumes, networks, configs or secrets of the whole project.
    fn section(&mut self, section: &str, value: &Part) {
        if value.has_tag() {
            self.add(section, "the file", &format!("replaces {section} of gpucl's"));
        }
        let value = value.untagged();
        let Part::Map(entries) = &value else {
            if value != Part::Nothing {
                self.add(section, "the file", "cannot be understood here");
            }
            return;
        };
        let known: &[&str] = match section {
            "volumes" => &["driver", "labels"],
            "networks" => &["driver", "internal", "labels"],
            _ => &["content", "labels", "name"],
        };
        for (name, value) in entries {
            let place = join(section, name);
            let title = format!("{} {}", section.trim_end_matches('s'), shown(name));
            let entries = self.only(&place, &title, value, known);
            for (key, value) in &entries {
                match *key {
                    "labels" => self.labels(&join(&place, key), &title, value),
                    "driver" if !is_one_of(value, &["bridge", "local"]) => {
                        self.add(&join(&place, key), &title, "has another driver");
                    }
                    _ => {}
                }
            }
            let internal: Vec<&Part> =
                entries.iter().filter(|(key, _)| *key == "internal").map(|(_, is)| *is).collect();
            let is_closed = !internal.is_empty() && internal.iter().all(|is| **is == Part::Flag(true));
            match (section, name.as_str()) {
                ("networks", "default") if !internal.is_empty() => {
                    self.add(&place, &title, "is another network than gpucl makes");
                }
                ("networks", "default") => {}
                ("networks", _) if !is_closed => self.add(&place, &title, "is not closed by gpucl's firewall"),
                _ => {}
            }
        }
    }
}

/// Whether a key does nothing with this value, whatever the key.
fn is_unset(key: &str, value: &Part) -> bool {
    let is_empty = match value {
        Part::Nothing | Part::Flag(false) => true,
        Part::List(items) => items.is_empty(),
        Part::Map(entries) => entries.is_empty(),
        _ => false,
    };
    key.starts_with("x-") || is_empty
}

/// Whether a service of gpucl's only has limits of processors and memory here.
fn is_limit(deploy: &Part) -> bool {
    let entries = |part: &Part| if let Part::Map(entries) = part { entries.clone() } else { Vec::new() };
    let has_devices = |part: &Part| entries(part).iter().any(|(key, _)| key == "devices");
    entries(deploy)
        .iter()
        .all(|(key, value)| key == "resources" && !entries(value).iter().any(|(_, value)| has_devices(value)))
}

fn is_tighter(value: &Part) -> bool {
    let known = ["no-new-privileges", "no-new-privileges:true", "no-new-privileges=true"];
    matches!(value, Part::List(items) if items.iter().all(|one| is_one_of(one, &known)))
}

fn shown(text: &str) -> String {
    printable_line(&shortened(text)).into_owned()
}

/// A short value, or the source of a volume, to be added to a sentence.
fn quoted(value: &Part) -> String {
    match value {
        Part::Text(text) | Part::Number(text) => format!(": `{}`", shown(text)),
        Part::Map(entries) => match entries.iter().find(|(key, _)| key == "source" || key == "published") {
            Some((_, value @ (Part::Text(_) | Part::Number(_)))) => quoted(value),
            _ => String::new(),
        },
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests;
