//! What an application of Serve is to be: from the command line, a spec, or a config file of Serve (ray 2.60.0).

use std::path::Path;

use serde_json::{Map, Value, json};

use super::runtime_env::RuntimeEnv;
use super::serve::MARK;
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::util::fence::Fence;
use crate::util::fs::{RECORD_LIMIT, read_text_within};
use crate::util::near::nearest;

/// The keys of an application in a config file.
const KEYS: &[&str] = &[
    "name",
    "route_prefix",
    "import_path",
    "runtime_env",
    "args",
    "deployments",
    "logging_config",
    "autoscaling_policy",
    "external_scaler_enabled",
];
/// The keys of a config file.
const TOP_KEYS: &[&str] = &[
    "applications",
    "proxy_location",
    "http_options",
    "grpc_options",
    "logging_config",
    "tracing_config",
    "controller_options",
    "target_capacity",
];
/// The name of an application that has none.
pub const DEFAULT_APPLICATION: &str = "default";

/// An application as it is to be deployed; its runtime environment may still refer to local files.
#[derive(Debug, Clone, PartialEq)]
pub struct ServeApplication {
    /// Its name.
    pub name: String,
    /// The runtime environment of its replicas.
    pub environment: RuntimeEnv,
    /// The keys of its configuration, but the name and the environment.
    fields: Map<String, Value>,
}

/// What was read from a config file.
#[derive(Debug, Clone, PartialEq)]
pub struct ServeFile {
    /// Its applications.
    pub applications: Vec<ServeApplication>,
    /// What of the file is not used, in one sentence each.
    pub notes: Vec<String>,
}

impl ServeApplication {
    /// An application of this import path.
    ///
    /// # Errors
    /// If the import path is not MODULE:VARIABLE, or the route does not begin with `/`.
    pub fn new(name: &str, route_prefix: &str, import_path: &str, environment: RuntimeEnv) -> Result<Self> {
        let fields = Map::from_iter([
            ("route_prefix".to_owned(), json!(route_prefix)),
            ("import_path".to_owned(), json!(import_path)),
        ]);
        let made = Self { name: name.to_owned(), environment, fields };
        made.fault().map_or(Ok(made), |why| Err(Error::new(ErrorKind::Usage, format!("deploy {name}")).because(why)))
    }

    /// Sets a key of its configuration.
    #[must_use]
    pub fn with(mut self, key: &str, value: Value) -> Self {
        self.fields.insert(key.to_owned(), value);
        self
    }

    /// The module that it is imported from.
    pub fn module(&self) -> &str {
        let path = self.fields.get("import_path").and_then(Value::as_str).unwrap_or_default();
        path.split([':', '.']).next().unwrap_or_default()
    }

    /// Where its URLs begin.
    pub fn route_prefix(&self) -> &str {
        self.fields.get("route_prefix").and_then(Value::as_str).unwrap_or("/")
    }

    /// The configuration to send to Serve.
    pub fn into_configuration(self) -> Value {
        let mut environment = self.environment.into_fields();
        environment.entry("env_vars").or_insert_with(|| json!({}))[MARK] = json!("1");
        let mut fields = self.fields;
        fields.insert("name".to_owned(), Value::String(self.name));
        fields.insert("runtime_env".to_owned(), Value::Object(environment));
        Value::Object(fields)
    }

    /// What is wrong with it.
    fn fault(&self) -> Option<String> {
        if self.name.is_empty() || self.name.contains(|letter: char| letter.is_control() || "#/ ".contains(letter)) {
            return Some(format!("`{}` cannot be an application's name", self.name));
        }
        let Some(path) = self.fields.get("import_path").and_then(Value::as_str) else {
            return Some(format!("{} has no `import_path`, such as app:food", self.name));
        };
        if !is_import_path(path) {
            return Some(format!("`{path}` is not MODULE:VARIABLE, such as app:food"));
        }
        match self.fields.get("route_prefix") {
            None | Some(Value::Null) => None,
            Some(Value::String(prefix)) if prefix.starts_with('/') => None,
            Some(_) => Some(format!("the route prefix of {} does not begin with /, such as /food", self.name)),
        }
    }
}

/// Whether a text names a variable of a module: `app:food`, or as `app.food`.
pub fn is_import_path(text: &str) -> bool {
    let is_name =
        |text: &str| !text.is_empty() && text.chars().all(|it| it.is_alphanumeric() || it == '_' || it == '.');
    text.split_once(':').is_some_and(|(module, variable)| is_name(module) && is_name(variable))
}

impl ServeFile {
    /// Reads a config file of Serve. Paths in its runtime environments begin at the fence's folder, as those of jobs do.
    ///
    /// # Errors
    /// If it cannot be read, has keys that Serve does not know, or such as would open a port without a key.
    pub fn read(path: &Path, fence: &Fence) -> Result<Self> {
        let doing = format!("read {}", path.display());
        let wrong = |why: String| Error::new(ErrorKind::Usage, doing.clone()).because(why);
        let file = fence.of_the_user(path).map_err(|why| wrong(why.to_string()))?;
        let text = read_text_within(&file, RECORD_LIMIT).doing(ErrorKind::Usage, || doing.clone())?;
        let value: Value = serde_yaml::from_str(&text).doing(ErrorKind::Usage, || doing.clone())?;
        let Value::Object(mut top) = value else {
            return Err(wrong("it is not a mapping with `applications:`".to_owned()));
        };
        if let Some(why) = unknown(&top, TOP_KEYS) {
            return Err(wrong(why));
        }
        let mut notes = Vec::new();
        refuse_open(&top).map_err(|(why, hint)| wrong(why).hint(hint))?;
        if top.contains_key("proxy_location") || top.contains_key("http_options") {
            notes.push(
                "`proxy_location` and `http_options` of the file are not used: one proxy serves all applications, on the \
                 head's loopback, behind a key"
                    .to_owned(),
            );
        }
        let logging = top.remove("logging_config").filter(|config| !config.is_null());
        let Some(Value::Array(all)) = top.remove("applications").filter(|all| all != &json!([])) else {
            return Err(wrong("it has no `applications:`".to_owned()).hint("write them as `serve build` does"));
        };
        let mut applications: Vec<ServeApplication> = Vec::new();
        for (index, value) in all.into_iter().enumerate() {
            let Value::Object(mut fields) = value else {
                return Err(wrong(format!("applications[{index}] is not a mapping")));
            };
            if let Some(why) = unknown(&fields, KEYS) {
                return Err(wrong(format!("applications[{index}]: {why}")));
            }
            let name = match fields.remove("name") {
                None => DEFAULT_APPLICATION.to_owned(),
                Some(Value::String(name)) => name,
                Some(other) => return Err(wrong(format!("applications[{index}].name is {other}, and has to be text"))),
            };
            if let (Some(logging), false) = (&logging, fields.contains_key("logging_config")) {
                fields.insert("logging_config".to_owned(), logging.clone());
            }
            let environment = fields.remove("runtime_env").unwrap_or_default();
            let environment = RuntimeEnv::of_value(environment, fence.folder(), Some(fence.clone()), &doing)?;
            let application = ServeApplication { name, environment, fields };
            if let Some(why) = application.fault() {
                return Err(wrong(format!("applications[{index}]: {why}")));
            }
            if let Some(other) = applications
                .iter()
                .find(|other| other.name == application.name || other.route_prefix() == application.route_prefix())
            {
                return Err(wrong(format!(
                    "applications[{index}]: {} has the name or the route prefix of {}",
                    application.name, other.name
                )));
            }
            applications.push(application);
        }
        Ok(Self { applications, notes })
    }
}

/// What would open a port without a key, or is of all applications and not of these.
fn refuse_open(top: &Map<String, Value>) -> std::result::Result<(), (String, &'static str)> {
    let grpc = top.get("grpc_options").and_then(|options| options.get("grpc_servicer_functions"));
    if grpc.and_then(Value::as_array).is_some_and(|functions| !functions.is_empty()) {
        let why = "`grpc_options` would open a port that asks nobody for a key".to_owned();
        return Err((why, "leave it out; applications answer over HTTP"));
    }
    let http = top.get("http_options").and_then(Value::as_object);
    let other =
        http.into_iter().flatten().find(|(key, value)| !["host", "port"].contains(&key.as_str()) && !value.is_null());
    if let Some((key, _)) = other {
        let why = format!("`{key}` of `http_options` cannot be set: one proxy serves all applications of the cluster");
        return Err((why, "leave it out"));
    }
    let of_all = ["tracing_config", "controller_options", "target_capacity"];
    match of_all.iter().find(|key| top.get(**key).is_some_and(|value| !value.is_null())) {
        Some(key) => Err((format!("`{key}` is of all applications of the cluster, and cannot be set"), "leave it out")),
        None => Ok(()),
    }
}

/// The first key that is not among these, with a near one.
fn unknown(map: &Map<String, Value>, known: &[&str]) -> Option<String> {
    let key = map.keys().find(|key| !known.contains(&key.as_str()))?;
    let meant = nearest(key, known.iter().copied()).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    Some(format!("`{key}` is no key of Serve's config file{meant}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ServeFile> {
        let folder = tempfile::tempdir().unwrap();
        fs_err::write(folder.path().join("serve.yaml"), text).unwrap();
        let fence = Fence::new(folder.path(), "the working folder", &[]).unwrap();
        ServeFile::read(Path::new("serve.yaml"), &fence)
    }

    fn application(name: &str, environment: Value) -> Value {
        let environment = RuntimeEnv::parse(&environment.to_string(), Path::new("/")).unwrap();
        ServeApplication::new(name, "/", "app:food", environment).unwrap().into_configuration()
    }

    #[test]
    fn an_application_is_marked_and_keeps_its_variables() {
        let made = application("food", json!({"env_vars": {"A": "1"}, "working_dir": "gcs://x.zip"}));
        assert_eq!(made["runtime_env"]["env_vars"], json!({"A": "1", "GPUCL_SERVE": "1"}));
        assert_eq!(application("f", json!({}))["runtime_env"]["env_vars"], json!({"GPUCL_SERVE": "1"}));
    }

    #[test]
    fn a_config_file_keeps_all_of_an_application() {
        let text = "proxy_location: EveryNode\nhttp_options: {host: 0.0.0.0, port: 8000}\n\
                    grpc_options: {port: 9000, grpc_servicer_functions: []}\nlogging_config: {log_level: DEBUG}\n\
                    applications:\n- name: food\n  route_prefix: /food\n  import_path: app:food\n  args: {v: 1}\n  \
                    runtime_env: {env_vars: {A: b}}\n  deployments: [{name: Food, num_replicas: 2}]\n\
                    - {name: other, import_path: 'x.y:z', route_prefix: /other, logging_config: {log_level: INFO}}\n";
        let file = read(text).unwrap();
        assert_eq!(file.notes.len(), 1);
        let [food, other] = file.applications.try_into().unwrap();
        assert_eq!((food.module(), other.module()), ("app", "x"));
        let food = food.into_configuration();
        assert_eq!(food["deployments"], json!([{"name": "Food", "num_replicas": 2}]));
        assert_eq!((&food["args"], &food["logging_config"]), (&json!({"v": 1}), &json!({"log_level": "DEBUG"})));
        assert_eq!(food["runtime_env"]["env_vars"], json!({"A": "b", "GPUCL_SERVE": "1"}));
        assert_eq!(other.into_configuration()["logging_config"], json!({"log_level": "INFO"}));
    }

    #[test]
    fn a_config_file_opens_nothing_and_each_mistake_is_named() {
        let one = "applications: [{import_path: 'app:food'}]\n";
        assert_eq!(read(one).unwrap().applications[0].name, "default");
        for (text, says) in [
            ("[]", "not a mapping"),
            ("applications: []", "has no `applications:`"),
            ("applications: [{name: a}]", "has no `import_path`"),
            ("applications: [{import_path: app}]", "is not MODULE:VARIABLE"),
            ("applications: [{import_path: 'a:b', route_prefx: /x}]", "did you mean `route_prefix`?"),
            ("applications: [{import_path: 'a:b', route_prefix: x}]", "does not begin with /"),
            ("applications: [{import_path: 'a:b'}, {name: c, import_path: 'a:b'}]", "has the name or the route prefix"),
            (&format!("{one}grpc_options: {{grpc_servicer_functions: [a.b]}}"), "asks nobody for a key"),
            (&format!("{one}http_options: {{ssl_keyfile: x}}"), "`ssl_keyfile` of `http_options`"),
            (&format!("{one}target_capacity: 50"), "`target_capacity` is of all applications"),
            (&format!("{one}aplications: []"), "did you mean `applications`?"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.to_string().contains(says) || error.causes().join(" ").contains(says), "{text}: {error}");
        }
    }
}
