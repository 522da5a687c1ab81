//! What a host must hold before nodes can run on it: the shared Ray environment, our scripts, the token.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};

use super::Layout;
use crate::error::Result;
use crate::host::{ExecEnd, Host, StageFile};
use crate::playbook::{self, Stage, StageReport};
use crate::render::Library;
use crate::spec::Spec;

/// The state that a host was brought to, as it is remembered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepared {
    /// The digest of what was asked for.
    pub digest: String,
    /// The virtual environment that Ray is in.
    pub ray_env: PathBuf,
    /// The version of the Python in it.
    pub python: String,
    /// What must be there for it to hold still.
    pub paths: Vec<PathBuf>,
}

/// The stage that prepares a host for a spec.
pub fn preparation(spec: &Spec, library: &Library, cache_dir: &Path, token: &SecretString) -> Result<Stage> {
    let playbook = playbook::load(library, "ray-native")?;
    let variables = BTreeMap::from([
        ("ray_version".to_owned(), spec.ray.version.clone()),
        ("environments".to_owned(), cache_dir.join("environments").display().to_string()),
    ]);
    let mut stage = playbook.stage("prepare", &variables, spec.timeouts.prepare.0)?;
    for script in ["reaper.py", "node.py", "probe.py"] {
        let (bytes, _) = library.read(&format!("templates/ray-native/{script}"))?;
        stage.files.push(StageFile { path: script.to_owned(), mode: 0o600, bytes });
    }
    stage.files.push(StageFile {
        path: "secrets/ray_token".to_owned(),
        mode: 0o600,
        bytes: token.expose_secret().as_bytes().to_vec(),
    });
    Ok(stage)
}

impl Prepared {
    /// What is remembered of a stage that was seen through.
    pub fn of(stage: &Stage, report: &StageReport, layout: &Layout) -> Self {
        let value = |name: &str| report.values.get(name).cloned().unwrap_or_default();
        let ray_env = PathBuf::from(value("ray_env"));
        let paths = vec![
            ray_env.join(".complete"),
            ray_env.join("bin/python"),
            layout.reaper_script(),
            layout.node_script(),
            layout.probe_script(),
            layout.token(),
        ];
        Self { digest: stage.digest(), ray_env, python: value("python"), paths }
    }
}

/// Looks whether all that was prepared is still there, by one exec.
pub async fn is_prepared(host: &dyn Host, prepared: &Prepared) -> Result<bool> {
    let quoted: Vec<String> =
        prepared.paths.iter().map(|path| format!("'{}'", path.display().to_string().replace('\'', r"'\''"))).collect();
    let program = format!("for path in {}; do test -e \"$path\" || exit 1; done\n", quoted.join(" "));
    Ok(host.exec(&program, &mut |_, _| {}).await? == ExecEnd::Exited(0))
}
