//! Runtime environments: read from a file or the command line, with local files inlined or packed.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::util::fs::{RECORD_LIMIT, read_text_within};

/// A runtime environment that may still refer to local files.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RuntimeEnv {
    fields: Map<String, Value>,
}

/// A working folder that has to be packed and uploaded first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkingDir {
    /// A folder, and the patterns to exclude.
    Folder(PathBuf, Vec<String>),
    /// A zip file made by the user.
    Zip(PathBuf),
}

impl RuntimeEnv {
    /// Reads a runtime environment: inline JSON if it begins with `{`, else a YAML or JSON file.
    ///
    /// Paths in it are relative to `here`, as with Ray's own tools.
    ///
    /// # Errors
    /// If it cannot be read or parsed.
    pub fn read(text_or_path: &str, here: &Path) -> Result<Self> {
        let inline = text_or_path.trim_start().starts_with('{');
        let (text, doing) = if inline {
            (text_or_path.to_owned(), "read the runtime environment from the command line".to_owned())
        } else {
            let doing = format!("read the runtime environment `{text_or_path}`");
            let text =
                read_text_within(&here.join(text_or_path), RECORD_LIMIT).doing(ErrorKind::Usage, || doing.clone())?;
            (text, doing)
        };
        let value: Value = if inline {
            serde_json::from_str(&text).doing(ErrorKind::Usage, || doing.clone())?
        } else {
            yaml(&text, &doing)?
        };
        let fields = match value {
            Value::Object(fields) => fields,
            Value::Null => Map::new(),
            _ => return Err(Error::new(ErrorKind::Usage, doing).because("it is not a mapping")),
        };
        let mut read = Self { fields };
        read.bring_files(here, &doing)?;
        Ok(read)
    }

    /// Sets an environment variable of the job.
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
        Ok(())
    }

    /// Removes and returns the local working folder, if there is one. `chosen` is the one from the command line.
    ///
    /// # Errors
    /// If both name one, or it does not exist.
    pub fn take_working_dir(&mut self, chosen: Option<&Path>, here: &Path) -> Result<Option<WorkingDir>> {
        let doing = "find the working folder";
        let excludes = self.take_excludes()?;
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
            (Some(chosen), None) => here.join(chosen),
            // A URL that Ray fetches itself.
            (None, Some(named)) if named.contains("://") => return Ok(None),
            (None, Some(named)) => here.join(named),
            (None, None) => return Ok(None),
        };
        self.fields.remove("working_dir");
        let data = fs_err::metadata(&local).doing(ErrorKind::Usage, || doing.to_owned())?;
        if data.is_dir() {
            Ok(Some(WorkingDir::Folder(local, excludes)))
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
        for key in ["pip", "uv"] {
            if let Some(Value::String(path)) = self.fields.get(key) {
                let lines = requirements(&here.join(path), doing)?;
                self.fields.insert(key.to_owned(), lines);
            } else if let Some(Value::Object(inner)) = self.fields.get_mut(key)
                && let Some(Value::String(path)) = inner.get("packages")
            {
                let lines = requirements(&here.join(path), doing)?;
                inner.insert("packages".to_owned(), lines);
            }
        }
        if let Some(Value::String(name)) = self.fields.get("conda")
            && (name.ends_with(".yml") || name.ends_with(".yaml"))
        {
            let text = read_text_within(&here.join(name), RECORD_LIMIT).doing(ErrorKind::Usage, || doing.to_owned())?;
            let value = yaml(&text, doing)?;
            self.fields.insert("conda".to_owned(), value);
        }
        let local = |value: &Value| value.as_str().is_some_and(|place| !place.contains("://"));
        if let Some(Value::Array(modules)) = self.fields.get("py_modules")
            && modules.iter().any(local)
        {
            return Err(Error::new(ErrorKind::Unsupported, doing)
                .because("`py_modules` names a folder on this machine")
                .hint("put the module into the working folder: it is on the job's import path"));
        }
        Ok(())
    }
}

fn requirements(path: &Path, doing: &str) -> Result<Value> {
    let text = read_text_within(path, RECORD_LIMIT).doing(ErrorKind::Usage, || doing.to_owned())?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(lines.map(|line| Value::String(line.to_owned())).collect())
}

fn yaml(text: &str, doing: &str) -> Result<Value> {
    serde_yaml::from_str(text).doing(ErrorKind::Usage, || doing.to_owned())
}
