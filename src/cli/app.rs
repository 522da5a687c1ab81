//! The context of every command: folders, output, environment, the selected cluster.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use etcetera::BaseStrategy as _;
use tokio::task::JoinHandle;

use super::command_error::usage;
use super::global::{Format, Global};
use super::output::Ui;
use super::own_files::{self, DATA_FOLDER};
use crate::error::{Error, ErrorKind, Result};
use crate::provider::{Context, UserEnvironment};
use crate::render::Library;
use crate::state::Paths;

/// The context of a command.
pub(crate) struct App {
    /// This user's gpucl folders.
    pub(crate) paths: Paths,
    /// Output to stdout and stderr.
    pub(crate) ui: Ui,
    /// The cluster that `-c` or `GPUCL_CLUSTER` names.
    pub(crate) cluster: Option<String>,
    /// Answer yes to every question.
    pub(crate) yes: bool,
    /// Folders of data files that take precedence over the built-in ones, highest first.
    pub(crate) data_dirs: Vec<PathBuf>,
    /// The working folder.
    pub(crate) here: PathBuf,
    environment: BTreeMap<OsString, OsString>,
    /// Whether the data files in the working folder are used, once that was decided.
    own_files: Mutex<Option<bool>>,
    /// The tasks that show the events of commands without a run.
    showing: Mutex<Vec<JoinHandle<()>>>,
}

/// How long events of a command that has ended may take to be shown.
const SHOWN_WITHIN: Duration = Duration::from_millis(50);

impl App {
    /// Reads the environment, once.
    pub(crate) fn new(global: &Global) -> Result<Self> {
        let environment: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
        let variable = |name: &str| environment.get(&OsString::from(name)).and_then(|value| value.to_str());
        let paths = paths(variable)?;
        let here = std::env::current_dir()
            .map_err(|error| super::command_error::internal("find the working folder", &error))?;
        let mut data_dirs: Vec<PathBuf> = global.data_dir.iter().cloned().collect();
        data_dirs.push(here.join(DATA_FOLDER));
        data_dirs.push(paths.config.clone());
        let colour = variable("NO_COLOR").is_none_or(str::is_empty) && variable("TERM") != Some("dumb");
        let progress = variable("GPUCL_NO_PROGRESS").is_none_or(str::is_empty)
            && std::io::stderr().is_terminal()
            // Without TERM the cursor cannot be moved, and undrawn progress would be lost.
            && variable("TERM").is_some_and(|term| !term.is_empty() && term != "dumb");
        let cluster = global
            .cluster
            .clone()
            .or_else(|| variable("GPUCL_CLUSTER").filter(|name| !name.is_empty()).map(str::to_owned));
        Ok(Self {
            ui: Ui::new(global.output, colour, progress, global.quiet),
            cluster,
            yes: global.yes,
            data_dirs,
            here,
            paths,
            environment,
            own_files: Mutex::default(),
            showing: Mutex::default(),
        })
    }

    /// A context without an environment, for unit tests of commands.
    #[cfg(test)]
    pub(crate) fn for_test(paths: Paths) -> Self {
        Self {
            ui: Ui::new(Format::Text, false, false, true),
            cluster: None,
            yes: true,
            data_dirs: Vec::new(),
            here: paths.state.clone(),
            paths,
            environment: BTreeMap::new(),
            own_files: Mutex::default(),
            showing: Mutex::default(),
        }
    }

    /// An environment variable; `None` if it is unset or not UTF-8.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.environment.get(&OsString::from(name)).and_then(|value| value.to_str())
    }

    /// Settings for commands that change a cluster; creates the owner if there is none.
    pub(crate) fn settings(
        &self,
        events: crate::event::Bus,
        cancel: crate::engine::Cancel,
    ) -> Result<crate::cluster::Settings> {
        self.settings_of(crate::state::owner(&self.paths)?, events, cancel)
    }

    /// Settings for read-only commands: they create no owner. Without an owner, nothing can belong to it.
    pub(crate) fn settings_to_inspect(
        &self,
        events: crate::event::Bus,
        cancel: crate::engine::Cancel,
    ) -> Result<crate::cluster::Settings> {
        let owner = match crate::state::known_owner(&self.paths)? {
            Some(owner) => owner,
            None => "00000000".parse().map_err(|error| usage("make a placeholder owner", error))?,
        };
        self.settings_of(owner, events, cancel)
    }

    /// The user's data files. The one in the working folder is confined: like the spec there, it may be a stranger's.
    pub(crate) fn library(&self) -> Library {
        Library::new(self.data_dirs.clone()).confine(self.here.join(DATA_FOLDER))
    }

    /// Decides whether the data files in the working folder are used by this command.
    pub(crate) fn use_own_files(&self, is_used: bool) {
        if let Ok(mut own) = self.own_files.lock() {
            *own = Some(is_used);
        }
    }

    /// The data files to work with. Those in the working folder belong only if the user has accepted them as they are.
    fn accepted_library(&self) -> Result<Library> {
        let decided = self.own_files.lock().ok().and_then(|own| *own);
        if decided.map_or_else(|| own_files::are_accepted(&self.paths, &self.here), Ok)? {
            return Ok(self.library());
        }
        if decided.is_none() {
            self.ui.status(format!(
                "warning: ./{DATA_FOLDER} is not used, since it was not accepted: `gpucl up` asks, or --data-dir names it"
            ));
        }
        let own = self.here.join(DATA_FOLDER);
        Ok(Library::new(self.data_dirs.iter().filter(|folder| **folder != own).cloned().collect()))
    }

    fn settings_of(
        &self,
        owner: crate::name::Owner,
        events: crate::event::Bus,
        cancel: crate::engine::Cancel,
    ) -> Result<crate::cluster::Settings> {
        Ok(crate::cluster::Settings {
            owner,
            paths: self.paths.clone(),
            library: self.accepted_library()?,
            program: std::env::current_exe()
                .map_err(|error| super::command_error::internal("find gpucl's own executable", &error))?,
            environment: self.node_environment(),
            host_environment: self.host_environment(),
            user_environment: self.user_environment(),
            events,
            cancel,
        })
    }

    /// The variables passed to programs on this machine as a host: what they need to run and to install packages. The
    /// script that starts nodes (`src/core/runtime/native/shell/deploy_start.sh`) drops proxy logins.
    pub(crate) fn host_environment(&self) -> Vec<(OsString, OsString)> {
        const OF_INSTALLERS: &[&str] = &["PIP_", "UV_", "CURL_CA_BUNDLE", "RUSTUP_HOME"];
        let is_needed = |name: &OsString| {
            let name = name.to_string_lossy().to_uppercase();
            name.ends_with("_PROXY") || OF_INSTALLERS.iter().any(|begin| name.starts_with(begin))
        };
        let more = self.environment.iter().filter(|(name, _)| is_needed(name));
        let mut all: BTreeMap<OsString, OsString> = self.node_environment().into_iter().collect();
        all.extend(more.map(|(name, value)| (name.clone(), value.clone())));
        all.into_iter().collect()
    }

    /// The variables passed to nodes and to processes that outlive a command: what programs need to run, and to reach
    /// package indexes. Cloud credentials and all other variables never reach a node.
    pub(crate) fn node_environment(&self) -> Vec<(OsString, OsString)> {
        const NAMES: &[&str] = &[
            "HOME",
            "USER",
            "LOGNAME",
            "SHELL",
            "PATH",
            "LANG",
            "LANGUAGE",
            "TZ",
            "LD_LIBRARY_PATH",
            "CUDA_HOME",
            "XDG_RUNTIME_DIR",
            "XDG_STATE_HOME",
            "XDG_DATA_HOME",
            "XDG_CACHE_HOME",
            "XDG_CONFIG_HOME",
            "HTTP_PROXY",
            "HTTPS_PROXY",
            "NO_PROXY",
            "ALL_PROXY",
            "SSL_CERT_FILE",
            "SSL_CERT_DIR",
            "REQUESTS_CA_BUNDLE",
            "PIP_INDEX_URL",
            "PIP_EXTRA_INDEX_URL",
            "PIP_TRUSTED_HOST",
            "PIP_CERT",
            "PIP_CONFIG_FILE",
            "UV_INDEX_URL",
            "UV_DEFAULT_INDEX",
        ];
        let passes = |name: &OsString| {
            let name = name.to_string_lossy();
            name.starts_with("LC_") || NAMES.contains(&name.to_uppercase().as_str())
        };
        self.environment
            .iter()
            .filter(|(name, _)| passes(name))
            .map(|(name, value)| {
                // Jobs can read their environment. To give them the password, set it under `environment:`.
                let is_proxy = name.to_string_lossy().to_uppercase().ends_with("_PROXY");
                (name.clone(), if is_proxy { without_login(value) } else { value.clone() })
            })
            .collect()
    }

    /// How to draw a chart on stdout: as wide as the terminal, with block characters in a UTF-8 locale.
    pub(crate) fn chart_style(&self) -> super::output::gantt::Style {
        let stdout = std::io::stdout();
        let on_terminal = stdout.is_terminal();
        let columns = self.variable("COLUMNS").and_then(|text| text.parse().ok());
        let measured = || rustix::termios::tcgetwinsize(&stdout).ok().map(|size| usize::from(size.ws_col));
        let width = columns.or_else(|| if on_terminal { measured() } else { None }).filter(|columns| *columns > 0);
        let locale =
            ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|name| self.variable(name).filter(|it| !it.is_empty()));
        let blocks = locale.is_some_and(|locale| locale.to_lowercase().replace('-', "").ends_with("utf8"));
        let colour =
            on_terminal && self.variable("NO_COLOR").is_none_or(str::is_empty) && self.variable("TERM") != Some("dumb");
        super::output::gantt::Style { width: width.unwrap_or(80).max(40), blocks, colour }
    }

    /// An event bus for commands without a run record: notes and warnings go to stderr.
    pub(crate) fn plain_events(&self) -> crate::event::Bus {
        let (bus, mut inbox) = crate::event::Bus::new();
        let ui = self.ui;
        let showing = tokio::spawn(async move {
            while let Some(event) = inbox.recv().await {
                match event {
                    crate::event::EventKind::Note { message } => ui.status(message),
                    crate::event::EventKind::Warning { message } => ui.error_line(&format!("warning: {message}")),
                    _ => {}
                }
            }
        });
        if let Ok(mut all) = self.showing.lock() {
            all.push(showing);
        }
        bus
    }

    /// Prints the warnings of a command that shows no events; everything else is in its result.
    pub(crate) fn report_warnings(&self, mut inbox: crate::event::Inbox) {
        while let Ok(event) = inbox.try_recv() {
            if let crate::event::EventKind::Warning { message } = event {
                self.ui.error_line(&format!("warning: {message}"));
            }
        }
    }

    /// Waits until the events of a command that has ended are shown.
    pub(crate) async fn shown(&self) {
        let all = self.showing.lock().map(|mut all| std::mem::take(&mut *all)).unwrap_or_default();
        // A sender that is still held somewhere must not hold up the end.
        let _ = tokio::time::timeout(SHOWN_WITHIN, futures_util::future::join_all(all)).await;
    }

    /// `--output json` was given.
    pub(crate) fn json(&self) -> bool {
        self.ui.format() == Format::Json
    }

    /// Restarts deadline agents that were killed.
    pub(crate) fn revive_watchers(&self) {
        for error in crate::agent::watcher::revive(&self.paths, std::env::current_exe().ok().as_deref()) {
            self.ui.status(format!("warning: a deadline is not being enforced: {error}"));
        }
    }

    /// The context that a provider is opened with.
    pub(crate) fn provider_context(&self, events: crate::event::Bus) -> Context {
        self.paths.context(self.user_environment(), events)
    }

    /// The user environment: home, config folders and environment variables.
    pub(crate) fn user_environment(&self) -> UserEnvironment {
        let text =
            |(name, value): (&OsString, &OsString)| Some((name.to_str()?.to_owned(), value.to_str()?.to_owned()));
        let config_dir = self.paths.config.clone();
        UserEnvironment {
            variables: self.environment.iter().filter_map(text).collect(),
            home: self.variable("HOME").map(PathBuf::from).unwrap_or_default(),
            config_home: config_dir.parent().map(PathBuf::from).unwrap_or_default(),
            config_dir,
            here: self.here.clone(),
        }
    }
}

/// A proxy address without the user name and password that it may contain.
fn without_login(address: &OsStr) -> OsString {
    let Some(text) = address.to_str() else { return OsString::new() };
    let (scheme, rest) =
        text.split_once("://").map_or((String::new(), text), |(scheme, rest)| (format!("{scheme}://"), rest));
    let (place, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    // With an unescaped `/` in the password the address is invalid, and is dropped as a whole.
    let place = if path.contains('@') { "" } else { place };
    let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
    if place.is_empty() { OsString::new() } else { OsString::from(format!("{scheme}{place}{path}")) }
}

/// gpucl's folders: `gpucl` below each XDG folder.
fn paths<'a>(variable: impl Fn(&str) -> Option<&'a str>) -> Result<Paths> {
    let strategy = etcetera::base_strategy::Xdg::new().map_err(|error| {
        Error::new(ErrorKind::Usage, "find the home folder").caused_by(&error).hint("set HOME to your home folder")
    })?;
    let state = strategy.state_dir().unwrap_or_else(|| strategy.data_dir());
    // The runtime folder holds sockets, whose paths must be short; the fallback is a private folder in /tmp.
    let runtime = match variable("XDG_RUNTIME_DIR").filter(|folder| folder.starts_with('/')) {
        Some(folder) => PathBuf::from(folder).join("gpucl"),
        None => PathBuf::from(format!("/tmp/gpucl-{}", rustix::process::getuid().as_raw())),
    };
    if !state.is_absolute() {
        return Err(usage("find the state folder", "XDG_STATE_HOME is not an absolute path"));
    }
    Ok(Paths {
        config: strategy.config_dir().join("gpucl"),
        state: state.join("gpucl"),
        data: strategy.data_dir().join("gpucl"),
        cache: strategy.cache_dir().join("gpucl"),
        runtime,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_of_the_shell_do_not_reach_nodes() {
        let folder = std::path::Path::new("/nowhere");
        let at = |name: &str| folder.join(name);
        let paths = Paths {
            config: at("config"),
            state: at("state"),
            data: at("data"),
            cache: at("cache"),
            runtime: at("run"),
        };
        let mut app = App::for_test(paths);
        let secret = [
            "AWS_SECRET_ACCESS_KEY",
            "OS_APPLICATION_CREDENTIAL_SECRET",
            "OS_PASSWORD",
            "KUBECONFIG",
            "LAMBDA_API_KEY",
            "GITHUB_TOKEN",
            "SSH_AUTH_SOCK",
            "HF_TOKEN",
        ];
        for name in secret.iter().chain(&["PATH", "LC_ALL"]) {
            app.environment.insert(OsString::from(name), OsString::from("x"));
        }
        let passed: Vec<OsString> = app.node_environment().into_iter().map(|(name, _)| name).collect();
        assert_eq!(passed, ["LC_ALL", "PATH"]);
    }

    #[test]
    fn a_proxy_goes_to_jobs_without_its_login() {
        let bare = |text: &str| without_login(OsStr::new(text)).into_string().unwrap();
        assert_eq!(bare("http://me:pa%40ss@proxy.example.org:3128/"), "http://proxy.example.org:3128/");
        assert_eq!(bare("me:a@b@proxy:3128"), "proxy:3128");
        assert_eq!(bare("http://proxy:3128"), "http://proxy:3128");
        assert_eq!(bare("localhost,127.0.0.1,.example.org"), "localhost,127.0.0.1,.example.org");
        assert_eq!(bare("10.0.0.0/8,localhost"), "10.0.0.0/8,localhost");
        // Not a valid address: dropped, since the end of the password cannot be determined.
        assert_eq!(bare("http://me:pa/ss@proxy:3128"), "");
    }
}
