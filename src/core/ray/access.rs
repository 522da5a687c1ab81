//! The settings that other programs need to connect to a cluster, as shell commands.

use std::path::PathBuf;

use crate::util::text::quoted;

/// The addresses of a running cluster, as seen from this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// The dashboard and job API: `http://127.0.0.1:8265`.
    pub dashboard_url: String,
    /// Ray's GCS, for nodes of the cluster: `127.0.0.1:6379`.
    pub gcs_address: String,
    /// The file with the token; the token itself is never printed.
    pub token_path: PathBuf,
    /// Ray's virtual environment, if it is on this machine.
    pub environment: Option<PathBuf>,
    /// The head's data folder, if it is on this machine.
    pub data: Option<PathBuf>,
    /// The Ray client's address: `ray://127.0.0.1:10001`.
    pub client_address: String,
}

/// The shell that the commands are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shell {
    /// sh, bash, zsh, dash, ksh.
    Bash,
    /// fish.
    Fish,
    /// csh, tcsh.
    Csh,
}

/// A variable's name and new value; `None` unsets it.
pub type Setting = (&'static str, Option<String>);

impl Access {
    /// The variables that `ray` needs, in order. `path` is the current `PATH`.
    pub fn settings(&self, path: Option<&str>) -> Vec<Setting> {
        let set = |name, value: &str| (name, Some(value.to_owned()));
        let mut settings = vec![
            // It has priority over RAY_ADDRESS for jobs and for the state commands.
            set("RAY_API_SERVER_ADDRESS", &self.dashboard_url),
            set("RAY_ADDRESS", self.ray_address()),
            set("RAY_AUTH_MODE", "token"),
            // A token in the environment would override the file.
            ("RAY_AUTH_TOKEN", None),
            ("RAY_AUTH_TOKEN_PATH", Some(self.token_path.display().to_string())),
            // Else Ray's tools replace a loopback address with the machine's own, where nothing listens.
            set("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0"),
        ];
        if let Some(data) = &self.data {
            settings.push(("GPUCL_DATA", Some(data.display().to_string())));
        }
        if let Some(bin) = self.bin() {
            settings.push(("PATH", Some(in_front(&bin, path.unwrap_or_default()))));
        }
        settings
    }

    /// The variables of [`Self::settings`], unset; `PATH` without the environment.
    pub fn unsettings(&self, path: Option<&str>) -> Vec<Setting> {
        let mut settings: Vec<Setting> = self.settings(None).into_iter().map(|(name, _)| (name, None)).collect();
        settings.retain(|(name, _)| *name != "PATH");
        if let (Some(bin), Some(path)) = (self.bin(), path)
            && path.split(':').any(|folder| folder == bin)
        {
            settings.push(("PATH", Some(without(&bin, path))));
        }
        settings
    }

    /// The address for `ray.init()` and, if possible, `ray status`.
    ///
    /// With nodes on this machine it is the GCS address. On another machine a program cannot be a driver itself: it
    /// needs the Ray client's address, which `ray status` does not support. Both refuse `http://…`.
    fn ray_address(&self) -> &str {
        if self.environment.is_some() { &self.gcs_address } else { &self.client_address }
    }

    fn bin(&self) -> Option<String> {
        self.environment.as_ref().map(|folder| folder.join("bin").display().to_string())
    }
}

impl Shell {
    /// The commands that make these settings, for `eval`.
    pub fn render(self, settings: &[Setting]) -> String {
        let mut text = String::new();
        for (name, value) in settings {
            let line = match (self, value) {
                (Self::Bash, Some(value)) => format!("export {name}={}", quoted(value)),
                (Self::Bash, None) => format!("unset {name}"),
                (Self::Fish, Some(value)) if *name == "PATH" => {
                    let folders: Vec<String> = value.split(':').map(fish_quoted).collect();
                    format!("set -gx PATH {}", folders.join(" "))
                }
                (Self::Fish, Some(value)) => format!("set -gx {name} {}", fish_quoted(value)),
                (Self::Fish, None) => format!("set -e {name}"),
                // csh expands `!` as history even between quotes.
                (Self::Csh, Some(value)) => {
                    format!("setenv {name} {}", quoted(value).replace('!', r"\!"))
                }
                (Self::Csh, None) => format!("unsetenv {name}"),
            };
            // fish and csh join the lines of a command's output with spaces.
            text.push_str(&line);
            text.push_str(";\n");
        }
        text
    }
}

fn fish_quoted(value: &str) -> String {
    format!("'{}'", value.replace('\\', r"\\").replace('\'', r"\'"))
}

fn in_front(folder: &str, path: &str) -> String {
    let rest = without(folder, path);
    if rest.is_empty() { folder.to_owned() } else { format!("{folder}:{rest}") }
}

fn without(folder: &str, path: &str) -> String {
    path.split(':').filter(|known| *known != folder).collect::<Vec<_>>().join(":")
}
