//! `clouds.yaml` and `secure.yaml`, found and parsed as OpenStack's own clients do, except that none is taken from the
//! working folder unasked: it may be a stranger's, and name their address for your secret.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::flat::Flat;
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::provider::UserEnvironment;
use crate::util::fs::{RECORD_LIMIT, read_text_within, resolve};
use crate::util::near::nearest;

/// The file extensions, in the order in which they are tried.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// The clouds of the first `clouds.yaml` found, merged with `secure.yaml`.
#[derive(Default)]
pub(super) struct Clouds {
    /// The file; `None` if there is none.
    pub(super) path: Option<PathBuf>,
    clouds: Map<String, Value>,
}

impl Clouds {
    /// Reads the files. A `secure.yaml` applies only to the `clouds.yaml` in the same folder: another person's
    /// `clouds.yaml` could send your secret to their address.
    pub(super) fn read(user_environment: &UserEnvironment) -> Result<Self> {
        let Some((path, mut clouds)) = first(candidates(user_environment))? else {
            return Ok(Self::default());
        };
        if let Some((_, secure)) = first(secure_beside(user_environment, &path)?)? {
            merge(&mut clouds, secure);
        }
        let clouds = match clouds.remove("clouds") {
            Some(Value::Object(clouds)) => clouds,
            _ => Map::new(),
        };
        Ok(Self { path: Some(path), clouds })
    }

    pub(super) fn names(&self) -> Vec<&str> {
        self.clouds.keys().map(String::as_str).collect()
    }

    /// The options of a cloud, one entry per region.
    pub(super) fn cloud(&self, name: &str) -> Result<Vec<Flat>> {
        let doing = || format!("find the cloud `{name}`");
        let Some(cloud) = self.clouds.get(name) else {
            let error = Error::new(ErrorKind::Usage, doing());
            return Err(match (&self.path, nearest(name, self.names())) {
                (None, _) => error
                    .because("there is no clouds.yaml")
                    .hint("it is searched for in ~/.config/openstack and /etc/openstack; OS_CLIENT_CONFIG_FILE names another one"),
                (Some(path), near) => {
                    let error = error.because(format!("{} has only {}", path.display(), self.names().join(", ")));
                    match near {
                        Some(near) => error.hint(format!("did you mean `{near}`?")),
                        None => error.hint("choose one of them: OS_CLOUD=NAME"),
                    }
                }
            });
        };
        let mut whole = Flat::default();
        flatten(&mut whole, cloud);
        // Its certificate lies where the file does, and not in the folder in which a command is typed.
        if let (Some(named), Some(folder)) =
            (whole.get(&["cacert"]).map(str::to_owned), self.path.as_deref().and_then(Path::parent))
            && !named.starts_with('~')
        {
            whole.set("cacert", folder.join(named).display().to_string());
        }
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

/// Flattens a cloud's options; those below `auth:` take precedence.
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

/// The search path of `clouds.yaml`: `OS_CLIENT_CONFIG_FILE`, the user's, the machine's.
fn candidates(user_environment: &UserEnvironment) -> Vec<PathBuf> {
    // Relative to the working folder of the command.
    let named = user_environment.variable("OS_CLIENT_CONFIG_FILE").map(|path| user_environment.here.join(path));
    let folders = [
        user_environment.config_home.join("openstack"),
        PathBuf::from("/etc/xdg/openstack"),
        PathBuf::from("/etc/openstack"),
    ];
    named.into_iter().chain(folders.iter().flat_map(|folder| in_folder(folder, "clouds"))).collect()
}

/// The possible paths of the `secure.yaml` of this `clouds.yaml`.
fn secure_beside(user_environment: &UserEnvironment, clouds: &Path) -> Result<Vec<PathBuf>> {
    let folder = clouds.parent().unwrap_or(Path::new("/"));
    // A link may come with a folder, and lead to a file that was never meant for it.
    let real = |folder: &Path| resolve(folder).ok().flatten();
    let near = [real(folder), real(clouds).and_then(|path| path.parent().map(Path::to_owned))];
    let is_near = |path: &PathBuf| match resolve(path) {
        Ok(None) => true,
        Ok(Some(path)) => near.contains(&path.parent().map(Path::to_owned)),
        Err(_) => false,
    };
    let mut paths: Vec<PathBuf> = in_folder(folder, "secure").into_iter().filter(is_near).collect();
    if let Some(path) = user_environment.variable("OS_CLIENT_SECURE_FILE") {
        let path = user_environment.here.join(path);
        if path.parent().and_then(real) != real(folder) {
            return Err(Error::new(ErrorKind::Usage, "read the credentials in clouds.yaml")
                .because(format!("{} is in another folder than {}", path.display(), clouds.display()))
                .because("files of different folders are not merged")
                .hint("put both into one folder, and set OS_CLIENT_CONFIG_FILE and OS_CLIENT_SECURE_FILE")
                .hint("or use the clouds.yaml alone: unset OS_CLIENT_SECURE_FILE"));
        }
        paths.insert(0, path);
    }
    Ok(paths)
}

fn in_folder(folder: &Path, name: &str) -> [PathBuf; 3] {
    ENDINGS.map(|ending| folder.join(format!("{name}.{ending}")))
}

/// Reads the first of these files that exists.
fn first(paths: Vec<PathBuf>) -> Result<Option<(PathBuf, Map<String, Value>)>> {
    for path in paths {
        let text = match read_text_within(&path, RECORD_LIMIT) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => {
                return Err(error).doing(ErrorKind::Usage, || format!("read the credentials in {}", path.display()));
            }
        };
        let doing = || format!("read {}", path.display());
        // The parser's message could quote a line with a secret: report only the position.
        let value: Value = serde_yaml::from_str(&text).map_err(|error| {
            let place = error.location().map(|at| format!("line {}, column {}", at.line(), at.column()));
            let place = place.unwrap_or_else(|| "it".to_owned());
            Error::new(ErrorKind::Usage, doing())
                .because(format!("{place} is not valid YAML"))
                .hint("correct it, or set OS_CLIENT_CONFIG_FILE to another file")
        })?;
        let map = match value {
            Value::Object(map) => map,
            _ => Map::new(),
        };
        return Ok(Some((path, map)));
    }
    Ok(None)
}

/// Merges `over` into `map` recursively.
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
