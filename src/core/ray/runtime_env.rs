//! Runtime environments: read from a file or the command line, with local files inlined or packed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::requirements::{is_editable, is_path, requirements_of};
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::util::fence::{Fence, Outside};
use crate::util::fs::{RECORD_LIMIT, read_marked_text_within, read_text_within};
use crate::util::near::nearest;
use crate::util::variable;

/// The keys of a runtime environment (Ray 2.60.0, `RuntimeEnv.known_fields`), and `excludes`, which is ours to apply.
const KEYS: &[&str] = &[
    "py_modules",
    "py_executable",
    "java_jars",
    "working_dir",
    "conda",
    "pip",
    "uv",
    "container",
    "excludes",
    "env_vars",
    "config",
    "worker_process_setup_hook",
    "nsight",
    "rocprof_sys",
    "image_uri",
    "_nsight",
    "_rocprof_sys",
    "_ray_release",
    "_ray_commit",
    "_inject_current_ray",
];

/// The variable that names those whose values Ray must not expand; `templates/ray-native/worker.py` reads it.
const LITERAL: &str = "GPUCL_LITERAL";

/// How long all variables together may be, in bytes: Ray hands them to each process of the job in one argument, with its
/// own context (`--serialized-runtime-env-context`, ray 2.60.0). With longer ones no process starts, and nobody says why.
const MOST_VARIABLES: usize = variable::LONGEST - (8 << 10);

/// A runtime environment that may still refer to local files.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RuntimeEnv {
    fields: Map<String, Value>,
    // Only for packing, which is done on this machine.
    excludes: Vec<String>,
    /// What a file may name: it may be a stranger's, even if its reader types its name.
    fence: Option<Fence>,
}

/// A working folder that has to be packed and uploaded first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkingDir {
    /// A folder, and the patterns to exclude.
    Folder(PathBuf, Vec<String>),
    /// A zip file made by the user.
    Zip(PathBuf),
}

/// A Python module of `py_modules` that has to be packed and uploaded first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// Its place in the list.
    pub at: usize,
    /// What it is on this machine.
    pub source: ModuleSource,
}

/// What a local entry of `py_modules` is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModuleSource {
    /// A package's folder, whose name is the name to import, and the patterns to exclude.
    Folder(PathBuf, Vec<String>),
    /// A module of one file.
    File(PathBuf),
    /// A wheel, which is installed on the nodes.
    Wheel(PathBuf),
}

impl RuntimeEnv {
    /// Reads a runtime environment: inline JSON if it begins with `{`, else a YAML or JSON file.
    ///
    /// Paths in it are relative to the fence's folder: the working folder, as with Ray's own tools. A file names only
    /// what is within the fence; JSON that the user typed may name all that is the user's.
    ///
    /// # Errors
    /// If it cannot be read or parsed, or a file that it names cannot, or is outside the fence.
    pub fn read(text_or_path: &str, fence: &Fence) -> Result<Self> {
        if text_or_path.trim_start().starts_with('{') {
            return Self::parse(text_or_path, fence.folder());
        }
        let doing = format!("read the runtime environment `{text_or_path}`");
        let file = fence.of_the_user(Path::new(text_or_path)).map_err(|why| refused(&doing, &why))?;
        let text = read_text_within(&file, RECORD_LIMIT).doing(ErrorKind::Usage, || doing.clone())?;
        Self::of_value(yaml(&text, &doing)?, fence.folder(), Some(fence.clone()), &doing)
    }

    /// Parses a runtime environment written as JSON.
    ///
    /// # Errors
    /// As [`RuntimeEnv::read`].
    pub fn parse(json: &str, here: &Path) -> Result<Self> {
        let doing = "read the runtime environment from the command line";
        let value = serde_json::from_str(json).doing(ErrorKind::Usage, || doing.to_owned())?;
        Self::of_value(value, here, None, doing)
    }

    pub(super) fn of_value(value: Value, here: &Path, fence: Option<Fence>, doing: &str) -> Result<Self> {
        let fields = match value {
            Value::Object(fields) => fields,
            Value::Null => Map::new(),
            _ => return Err(Error::new(ErrorKind::Usage, doing).because("it is not a mapping")),
        };
        let mut read = Self { fields, excludes: Vec::new(), fence };
        read.excludes = read.take_excludes()?;
        read.check_variables(doing)?;
        read.bring_files(here, doing)?;
        Ok(read)
    }

    /// The path of what the runtime environment names to be packed.
    fn named(&self, name: &str, here: &Path, doing: &str) -> Result<PathBuf> {
        match &self.fence {
            // With its name as written: a link may have another name than its target, by which it is imported.
            Some(fence) => {
                fence.file_or_folder(Path::new(name)).map_err(|why| refused(doing, &why)).map(|_| here.join(name))
            }
            None => Ok(here.join(name)),
        }
    }

    /// Sets an environment variable of the job to this value as it is: Ray would replace `$NAME` and `${NAME}` in it by
    /// the node's own variables, as it does in those of the file (ray 2.60.0, `update_envs` in `_private/utils.py`).
    ///
    /// # Errors
    /// If `env_vars` of the file is not a mapping.
    pub fn set_variable(&mut self, name: &str, value: &str) -> Result<()> {
        let variables = self.fields.entry("env_vars").or_insert_with(|| Value::Object(Map::new()));
        let Value::Object(variables) = variables else {
            return Err(Error::new(ErrorKind::Usage, "set the job's variables")
                .because("`env_vars` of the runtime environment is not a mapping"));
        };
        variables.insert(name.to_owned(), Value::String(value.to_owned()));
        if value.contains('$') {
            let others = variables.get(LITERAL).and_then(Value::as_str).unwrap_or_default();
            let names: BTreeSet<&str> = others.split(',').chain([name]).filter(|name| !name.is_empty()).collect();
            let names = names.into_iter().collect::<Vec<_>>().join(",");
            variables.insert(LITERAL.to_owned(), Value::String(names));
        }
        self.check_variables("set the job's variables")
    }

    /// Adds packages, as pip takes them, to those that are installed.
    ///
    /// # Errors
    /// If the environment has packages in another form than a list for pip.
    pub fn add_packages(&mut self, packages: &[String]) -> Result<()> {
        if packages.is_empty() {
            return Ok(());
        }
        let wrong = |why: &str| Err(Error::new(ErrorKind::Usage, "add packages to the environment").because(why));
        if let Some(other) = ["uv", "conda"].iter().find(|key| self.fields.contains_key(**key)) {
            return wrong(&format!("the runtime environment has `{other}`: name them there"));
        }
        let added = packages.iter().cloned().map(Value::String);
        let there = match self.fields.entry("pip").or_insert_with(|| Value::Array(Vec::new())) {
            Value::Object(inner) => inner.entry("packages").or_insert_with(|| Value::Array(Vec::new())),
            list => list,
        };
        match there {
            Value::Array(list) => list.extend(added),
            _ => return wrong("`pip` of the runtime environment is not a list"),
        }
        Ok(())
    }

    /// Refuses variables that no process can be started with.
    fn check_variables(&self, doing: &str) -> Result<()> {
        let wrong = |why: String| Err(Error::new(ErrorKind::Usage, doing).because(why));
        let Some(Value::Object(variables)) = self.fields.get("env_vars") else { return Ok(()) };
        for (name, value) in variables {
            let Value::String(value) = value else {
                return wrong(format!("`{name}` of `env_vars` is {value}, and has to be text: \"{value}\""));
            };
            if let Some(fault) = variable::fault(name, value) {
                return wrong(format!("`{name}` of `env_vars` {fault}"));
            }
        }
        let length = serde_json::to_string(variables).map_or(0, |text| text.len());
        if length > MOST_VARIABLES {
            let (is, most) = (length >> 10, MOST_VARIABLES >> 10);
            return Err(Error::new(ErrorKind::Usage, doing)
                .because(format!(
                    "the job's variables have {is} KiB together; Ray starts no process with more than {most} KiB"
                ))
                .hint("send long values as a file in the working folder: `--working-dir .`"));
        }
        Ok(())
    }

    /// The keys that Ray does not know, each with a near one; Ray only writes of them in a log of a node.
    pub fn unknown_keys(&self) -> Vec<(String, Option<&'static str>)> {
        let unknown = self.fields.keys().filter(|key| !KEYS.contains(&key.as_str()));
        unknown.map(|key| (key.clone(), nearest(key, KEYS.iter().copied()))).collect()
    }

    /// Whether the job gets this variable.
    pub fn has_variable(&self, name: &str) -> bool {
        self.fields.get("env_vars").and_then(Value::as_object).is_some_and(|variables| variables.contains_key(name))
    }

    /// Whether the job gets a working folder.
    pub fn has_working_dir(&self) -> bool {
        self.fields.get("working_dir").is_some_and(|folder| !folder.is_null())
    }

    /// Removes and returns the local working folder, if there is one. `chosen` is the one from the command line, which
    /// may be a URL as well.
    ///
    /// # Errors
    /// If both name one, or it does not exist.
    pub fn take_working_dir(&mut self, chosen: Option<&Path>, here: &Path) -> Result<Option<WorkingDir>> {
        let doing = "find the working folder";
        let named = match self.fields.get("working_dir") {
            None | Some(Value::Null) => None,
            Some(Value::String(named)) => Some(named.clone()),
            Some(_) => {
                return Err(
                    Error::new(ErrorKind::Usage, doing).because("`working_dir` of the runtime environment is not text")
                );
            }
        };
        let local = match (chosen, named) {
            (Some(chosen), Some(named)) => {
                return Err(Error::new(ErrorKind::Usage, doing)
                    .because(format!(
                        "--working-dir says `{}`, the runtime environment says `{named}`",
                        chosen.display()
                    ))
                    .hint("leave one of the two out"));
            }
            // URLs that Ray fetches itself.
            (Some(chosen), None) if is_url(&chosen.to_string_lossy()) => {
                self.set_working_dir(chosen.to_string_lossy().into_owned());
                return Ok(None);
            }
            (Some(chosen), None) => here.join(chosen),
            (None, Some(named)) if is_url(&named) => return Ok(None),
            (None, Some(named)) => self.named(&named, here, doing)?,
            (None, None) => return Ok(None),
        };
        self.fields.remove("working_dir");
        let data = fs_err::metadata(&local).doing(ErrorKind::Usage, || doing.to_owned())?;
        if data.is_dir() {
            Ok(Some(WorkingDir::Folder(local, self.excludes.clone())))
        } else if local.extension().is_some_and(|ending| ending == "zip") {
            Ok(Some(WorkingDir::Zip(local)))
        } else {
            Err(Error::new(ErrorKind::Usage, doing)
                .because(format!("`{}` is neither a folder nor a zip file", local.display())))
        }
    }

    /// Sets the URI of the uploaded working folder.
    pub fn set_working_dir(&mut self, uri: String) {
        self.fields.insert("working_dir".to_owned(), Value::String(uri));
    }

    /// Returns the entries of `py_modules` on this machine; each has to be replaced by [`RuntimeEnv::set_module`].
    ///
    /// # Errors
    /// If `py_modules` is not a list of texts, or one is neither a URL, nor a folder, nor a `.py` or `.whl` file.
    pub fn local_modules(&self, here: &Path) -> Result<Vec<Module>> {
        let doing = "find the modules of `py_modules`";
        let wrong = |cause: String| Error::new(ErrorKind::Usage, doing).because(cause);
        let entries = match self.fields.get("py_modules") {
            None | Some(Value::Null) => return Ok(Vec::new()),
            Some(Value::Array(entries)) => entries,
            Some(_) => return Err(wrong("it is not a list".to_owned()).hint("write it as `py_modules: [./src/mine]`")),
        };
        let mut modules = Vec::new();
        for (at, entry) in entries.iter().enumerate() {
            let Some(name) = entry.as_str() else { return Err(wrong(format!("its entry {entry} is not text"))) };
            if is_url(name) {
                continue;
            }
            let path = self.named(name, here, doing)?;
            let data = fs_err::metadata(&path).doing(ErrorKind::Usage, || doing.to_owned())?;
            let ending = path.extension().and_then(|ending| ending.to_str());
            let source = match ending {
                _ if data.is_dir() => ModuleSource::Folder(path, self.excludes.clone()),
                Some("py") => ModuleSource::File(path),
                Some("whl") => ModuleSource::Wheel(path),
                _ => return Err(wrong(format!("`{name}` is neither a folder nor a `.py` or `.whl` file"))),
            };
            modules.push(Module { at, source });
        }
        Ok(modules)
    }

    /// Sets the URI of an uploaded module, by its place in `py_modules`.
    pub fn set_module(&mut self, at: usize, uri: String) {
        if let Some(Value::Array(entries)) = self.fields.get_mut("py_modules")
            && let Some(entry) = entries.get_mut(at)
        {
            *entry = Value::String(uri);
        }
    }

    /// The fields to send to Ray.
    pub fn into_fields(self) -> Map<String, Value> {
        self.fields
    }

    /// Removes and returns `excludes`, which only applies to packing, done locally.
    fn take_excludes(&mut self) -> Result<Vec<String>> {
        match self.fields.remove("excludes") {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(value) => serde_json::from_value(value)
                .doing(ErrorKind::Usage, || "read `excludes` of the runtime environment".to_owned()),
        }
    }

    /// Replaces the names of local files with their content: the head cannot read files on this machine.
    fn bring_files(&mut self, here: &Path, doing: &str) -> Result<()> {
        let fence = self.fence.clone();
        let text = |path: &Path| {
            let file = match &fence {
                Some(fence) => fence.file(path).map_err(|why| refused(doing, &why))?,
                None => path.to_owned(),
            };
            read_marked_text_within(&file, RECORD_LIMIT).doing(ErrorKind::Usage, || doing.to_owned())
        };
        let requirements = |path: &str| -> Result<Value> {
            let found = requirements_of(&here.join(path), doing, &text)?;
            // The job would fail with it only after its environment has been tried on a node.
            if let Some(line) = found.iter().find(|line| is_editable(line) || (!line.starts_with('-') && is_path(line)))
            {
                return Err(Error::new(ErrorKind::Usage, doing)
                    .because(format!(
                        "`{line}` in {path} is a folder or file of this machine, which the nodes cannot read"
                    ))
                    .hint("send it with the job: `py_modules: [./x]` takes a folder, a `.py` file or a wheel"));
            }
            Ok(found.into_iter().map(Value::String).collect())
        };
        for key in ["pip", "uv"] {
            if let Some(Value::String(path)) = self.fields.get(key) {
                let lines = requirements(path)?;
                self.fields.insert(key.to_owned(), lines);
            } else if let Some(Value::Object(inner)) = self.fields.get_mut(key)
                && let Some(Value::String(path)) = inner.get("packages")
            {
                let lines = requirements(path)?;
                inner.insert("packages".to_owned(), lines);
            }
        }
        if let Some(Value::String(name)) = self.fields.get("conda")
            && (name.ends_with(".yml") || name.ends_with(".yaml"))
        {
            let value = yaml(&text(&here.join(name))?, doing)?;
            self.fields.insert("conda".to_owned(), value);
        }
        Ok(())
    }
}

/// The error for what a file may not name.
fn refused(doing: &str, why: &Outside) -> Error {
    let error = Error::new(ErrorKind::Usage, doing);
    match why {
        Outside::Unread(_) => error.because(why),
        Outside::Beyond { allow, .. } => error
            .because(format!("{why}, but would be sent to the cluster"))
            .hint(format!("to allow this, add: --allow-path {}", allow.display())),
    }
}

fn is_url(text: &str) -> bool {
    text.contains("://")
}

fn yaml(text: &str, doing: &str) -> Result<Value> {
    serde_yaml::from_str(text).doing(ErrorKind::Usage, || doing.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_that_no_process_can_be_started_with_are_refused_before_anything_is_sent() {
        let parse = |variables: &str| RuntimeEnv::parse(&format!("{{\"env_vars\": {variables}}}"), Path::new("/"));
        for (variables, says) in [
            (format!("{{\"A\": \"{}\"}}", "x".repeat(150_000)), "`A` of `env_vars` has 146 KiB"),
            (format!("{{\"A\": \"{0}\", \"B\": \"{0}\"}}", "x".repeat(70_000)), "have 136 KiB together"),
            ("{\"\": \"1\"}".to_owned(), "is not the name of a variable"),
            ("{\"A=B\": \"1\"}".to_owned(), "is not the name of a variable"),
            ("{\"A\": \"\\u0000\"}".to_owned(), "a byte of value 0"),
            ("{\"A\": 1}".to_owned(), "`A` of `env_vars` is 1, and has to be text: \"1\""),
        ] {
            let error = parse(&variables).unwrap_err();
            assert!(error.causes()[0].contains(says), "{error}");
        }
        let mut whole = parse(&format!("{{\"A B\": \"{}\"}}", "x".repeat(60_000))).unwrap();
        whole.set_variable("B", "y").unwrap();
        assert!(whole.set_variable("C", &"x".repeat(64_000)).is_err());
    }
}
