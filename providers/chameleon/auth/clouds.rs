//! `clouds.yaml` and `secure.yaml`, found and read as OpenStack's own clients do.

use std::path::PathBuf;

use serde_json::{Map, Value};

use super::flat::Flat;
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::provider::Surroundings;
use crate::util::fs::{RECORD_LIMIT, read_text_within};
use crate::util::near::nearest;

/// The endings that a file may have, in the order in which they are tried.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// The clouds of the first `clouds.yaml`, with what `secure.yaml` adds.
#[derive(Default)]
pub(super) struct Clouds {
    /// The file; `None` when there is none.
    pub(super) path: Option<PathBuf>,
    clouds: Map<String, Value>,
}

impl Clouds {
    /// Reads them.
    pub(super) fn read(surroundings: &Surroundings) -> Result<Self> {
        let Some((path, mut clouds)) = first(surroundings, "clouds", "OS_CLIENT_CONFIG_FILE")? else {
            return Ok(Self::default());
        };
        if let Some((_, secure)) = first(surroundings, "secure", "OS_CLIENT_SECURE_FILE")? {
            merge(&mut clouds, secure);
        }
        let clouds = match clouds.remove("clouds") {
            Some(Value::Object(clouds)) => clouds,
            _ => Map::new(),
        };
        Ok(Self { path: Some(path), clouds })
    }

    /// The names of all clouds.
    pub(super) fn names(&self) -> Vec<&str> {
        self.clouds.keys().map(String::as_str).collect()
    }

    /// One cloud, once for each of its regions.
    pub(super) fn cloud(&self, name: &str) -> Result<Vec<Flat>> {
        let doing = || format!("find the cloud `{name}`");
        let Some(cloud) = self.clouds.get(name) else {
            let error = Error::new(ErrorKind::Usage, doing());
            return Err(match (&self.path, nearest(name, self.names())) {
                (None, _) => error
                    .because("there is no clouds.yaml")
                    .hint("it is looked for in the working folder, ~/.config/openstack and /etc/openstack; OS_CLIENT_CONFIG_FILE names another"),
                (Some(path), near) => {
                    let error = error.because(format!("{} has {}", path.display(), self.names().join(", ")));
                    match near {
                        Some(near) => error.hint(format!("did you mean `{near}`?")),
                        None => error.hint("OS_CLOUD names one of them"),
                    }
                }
            });
        };
        let mut whole = Flat::default();
        flatten(&mut whole, cloud);
        let regions = cloud.get("regions").and_then(Value::as_array).cloned().unwrap_or_default();
        if regions.is_empty() || whole.get(&["region_name"]).is_some() {
            return Ok(vec![whole]);
        }
        let of_region = |region: Value| {
            let mut one = whole.clone();
            if let Some(values) = region.get("values") {
                flatten(&mut one, values);
            }
            let name = region.get("name").unwrap_or(&region);
            if let Some(name) = name.as_str() {
                one.set("region_name", name.to_owned());
            }
            one
        };
        Ok(regions.into_iter().map(of_region).collect())
    }
}

/// Takes a cloud's options; what stands below `auth:` comes before what stands beside it.
fn flatten(flat: &mut Flat, cloud: &Value) {
    let scalars = |flat: &mut Flat, map: &Map<String, Value>| {
        for (key, value) in map {
            match value {
                Value::String(text) => flat.set(key, text.clone()),
                Value::Number(_) | Value::Bool(_) => flat.set(key, value.to_string()),
                _ => {}
            }
        }
    };
    let Some(map) = cloud.as_object() else { return };
    scalars(flat, map);
    if let Some(auth) = map.get("auth").and_then(Value::as_object) {
        scalars(flat, auth);
    }
}

/// The first file of this name: the one that the variable names, then the working folder, the user's, the machine's.
fn first(surroundings: &Surroundings, name: &str, variable: &str) -> Result<Option<(PathBuf, Map<String, Value>)>> {
    let mut paths: Vec<PathBuf> = Vec::new();
    if let Some(path) = surroundings.variable(variable) {
        // Relative to the working folder, which is where the command was given.
        paths.push(surroundings.here.join(path));
    }
    let folders = [
        surroundings.here.clone(),
        surroundings.config_home.join("openstack"),
        PathBuf::from("/etc/xdg/openstack"),
        PathBuf::from("/etc/openstack"),
    ];
    paths.extend(folders.iter().flat_map(|folder| ENDINGS.map(|ending| folder.join(format!("{name}.{ending}")))));
    for path in paths {
        let text = match read_text_within(&path, RECORD_LIMIT) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error).doing(ErrorKind::Usage, || format!("read the credentials in {name}.yaml")),
        };
        let doing = || format!("read {}", path.display());
        // The reader's own words could quote a line that holds a secret; where it stands is enough.
        let value: Value = serde_yaml::from_str(&text).map_err(|error| {
            let place = error.location().map(|at| format!("line {}, column {}", at.line(), at.column()));
            let place = place.unwrap_or_else(|| "it".to_owned());
            Error::new(ErrorKind::Usage, doing())
                .because(format!("{place} is no YAML"))
                .hint("put it right there, or name another file: OS_CLIENT_CONFIG_FILE")
        })?;
        let map = match value {
            Value::Object(map) => map,
            _ => Map::new(),
        };
        return Ok(Some((path, map)));
    }
    Ok(None)
}

/// Puts `over` onto `map`, at every depth.
fn merge(map: &mut Map<String, Value>, over: Map<String, Value>) {
    for (key, value) in over {
        match (map.get_mut(&key), value) {
            (Some(Value::Object(below)), Value::Object(value)) => merge(below, value),
            (_, value) => {
                map.insert(key, value);
            }
        }
    }
}
