//! A HOME of its own for every test, an environment of its own, and the program run in it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::times;

/// A hermetic environment: nothing of the machine's user is seen or touched.
pub(crate) struct TestEnv {
    root: tempfile::TempDir,
    variables: Vec<(String, String)>,
}

/// The result of a run of the program.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl TestEnv {
    pub(crate) fn new() -> Self {
        times::begin();
        let root = tempfile::Builder::new().prefix("gt-").tempdir().unwrap();
        for folder in ["home", "run", "work"] {
            std::fs::create_dir(root.path().join(folder)).unwrap();
        }
        Self { root, variables: Vec::new() }
    }

    /// An environment whose Ray is shared with other tests: made by the first of them, kept between runs of the tests.
    pub(crate) fn with_shared_ray() -> Self {
        let mut env = Self::new();
        env.set("XDG_CACHE_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/cache"));
        env
    }

    /// Sets a variable for all later runs.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.root.path().join("home")
    }

    /// The working folder of the program.
    pub(crate) fn work(&self) -> PathBuf {
        self.root.path().join("work")
    }

    pub(crate) fn root(&self) -> &Path {
        self.root.path()
    }

    /// Writes a file in the working folder.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.work().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Writes a playbook or template into the user's own folder of them.
    pub(crate) fn own(&self, name: &str, text: &str) {
        let path = self.home().join(".config/gpucl").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// The program with these arguments, ready to be run.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpucl"));
        command
            .args(arguments)
            .env_clear()
            .current_dir(self.work())
            .stdin(Stdio::null())
            .env("HOME", self.home())
            .env("XDG_RUNTIME_DIR", self.root.path().join("run"))
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            // pip asks for the version of rustc, whose wrapper would make a folder in HOME.
            .env("RUSTUP_HOME", std::env::var_os("RUSTUP_HOME").unwrap_or_else(|| home().join(".rustup").into()))
            .env("LANG", "C.UTF-8")
            .env("TZ", "UTC");
        // Package indexes are configured by the machine, not by the test.
        for (name, value) in std::env::vars_os() {
            let text = name.to_string_lossy().to_ascii_uppercase();
            let passes = ["PIP_", "UV_", "SSL_CERT_", "REQUESTS_CA_BUNDLE", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"]
                .iter()
                .any(|start| text.starts_with(start));
            if passes {
                command.env(name, value);
            }
        }
        for (name, value) in &self.variables {
            command.env(name, value);
        }
        command
    }

    /// The same with umask 0: any remaining protection comes from the program.
    pub(crate) fn unmasked(&self, arguments: &[&str]) -> Command {
        let program = self.command(arguments);
        let mut command = Command::new("sh");
        command.args(["-c", "umask 000; exec \"$@\"", "sh"]).arg(program.get_program()).args(program.get_args());
        command.env_clear().current_dir(self.work()).stdin(Stdio::null());
        for (name, value) in program.get_envs() {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        command
    }

    /// Runs the program.
    pub(crate) fn run(&self, arguments: &[&str]) -> Outcome {
        let output = self.command(arguments).output().unwrap();
        Outcome {
            code: output.status.code(),
            stdout: self.redact(&String::from_utf8_lossy(&output.stdout)),
            stderr: self.redact(&String::from_utf8_lossy(&output.stderr)),
        }
    }

    /// The folders of gpucl in the home.
    pub(crate) fn paths(&self) -> gpucl::state::Paths {
        let at = |name: &str| self.home().join(name).join("gpucl");
        gpucl::state::Paths {
            config: at(".config"),
            state: at(".local/state"),
            data: at(".local/share"),
            cache: at(".cache"),
            runtime: self.root().join("run/gpucl"),
        }
    }

    /// Accepts all that a spec in the working folder asks for, as its reader would on a terminal.
    #[track_caller]
    pub(crate) fn accept(&self, spec: &str) {
        let listed = self.run(&["plan", spec, "--output", "json"]);
        let asks = listed.stdout.lines().find(|line| line.contains(r#""type":"asks""#)).unwrap_or("{}");
        let asks: serde_json::Value = serde_json::from_str(asks).unwrap();
        let of_class = |is_wanted: &dyn Fn(&str) -> bool| {
            let asks = asks["asks"].as_array().into_iter().flatten();
            let wanted = asks.filter(|ask| is_wanted(ask["class"].as_str().unwrap()));
            wanted.map(|ask| ask["digest"].as_str().unwrap().to_owned()).collect::<std::collections::BTreeSet<_>>()
        };
        let paths = self.paths();
        let of = std::fs::canonicalize(self.work().join(spec)).unwrap();
        gpucl::state::accept(&paths, &of, of_class(&|class| class != "replaces")).unwrap();
        if let Ok(own) = std::fs::canonicalize(self.work().join(".gpucl")) {
            gpucl::state::accept(&paths, &own, of_class(&|class| class == "replaces")).unwrap();
        }
    }

    fn redact(&self, text: &str) -> String {
        text.replace(&self.root.path().display().to_string(), "$TEST")
    }
}

/// The home of the user who runs the tests.
fn home() -> PathBuf {
    std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default()
}

impl Outcome {
    /// The lines of stdout as JSON objects; asserts that each has a version and a type.
    #[track_caller]
    pub(crate) fn json(&self) -> Vec<serde_json::Value> {
        let read = |line: &str| {
            let value: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
            assert!(value["v"] == 1 && value["type"].is_string(), "no JSON object with version and type: {line}");
            value
        };
        self.stdout.lines().map(read).collect()
    }

    /// Asserts the exit code; shows all output on a failure.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    /// Asserts that stderr holds this text.
    #[track_caller]
    pub(crate) fn says(self, text: &str) -> Self {
        assert!(self.stderr.contains(text), "not said: {text}\nstdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    /// Asserts that stdout is this text and no more.
    #[track_caller]
    pub(crate) fn is(self, text: &str) -> Self {
        assert_eq!(self.stdout, text, "stderr:\n{}", self.stderr);
        self
    }

    /// Asserts that stdout holds this text.
    #[track_caller]
    pub(crate) fn prints(self, text: &str) -> Self {
        assert!(self.stdout.contains(text), "not printed: {text}\nstdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }
}
