//! A service beside the nodes, as a process of the host's supervisor.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::host::StageFile;
use crate::name::Key;
use crate::runtime::native::Layout;
use crate::runtime::project::{DeployRequest, HostInput};
use crate::util::digest;

/// Placeholder for the path of Ray's environment, known only on the host; `host.py` replaces it.
const RAY_ENV: &str = "@ray_env@";

/// One service.
pub(super) struct Service<'a> {
    pub(super) key: Key,
    /// Its name in logs and messages.
    pub(super) name: String,
    /// Its folder beside those of nodes.
    pub(super) short: &'static str,
    /// The program and its arguments.
    pub(super) argv: Vec<String>,
    /// Its files: what changes in them must change the digest.
    pub(super) files: &'a [StageFile],
    /// The ports that answer once it runs.
    pub(super) answers: Vec<u16>,
}

/// How Python is called, in isolation.
pub(super) fn isolated(python: &str) -> [String; 3] {
    [python.to_owned(), "-I".to_owned(), "-B".to_owned()]
}

impl Service<'_> {
    /// The service's process, which its reaper ends with all that it started.
    pub(super) fn launch(&self, request: &DeployRequest<'_>, host: &HostInput, layout: &Layout) -> Value {
        let path = |path: std::path::PathBuf| path.display().to_string();
        let mut argv: Vec<String> = isolated(&format!("{RAY_ENV}/bin/python")).into();
        argv.extend([path(layout.reaper_script()), "run".to_owned(), path(layout.home().to_owned())]);
        argv.push(self.key.to_string());
        argv.extend(self.argv.iter().cloned());
        let tag = request.scope.tag(&self.key).to_string();
        let mut environment =
            BTreeMap::from([("GPUCL_TAG".to_owned(), tag.clone()), ("GPUCL_HOST".to_owned(), host.tag.clone())]);
        let files: Vec<_> = self.files.iter().map(|file| (&file.path, digest::short(&file.bytes))).collect();
        let own = digest::of_json(&(&argv, &environment, files));
        environment.insert("GPUCL_DIGEST".to_owned(), own.clone());
        json!({
            "key": self.key,
            "name": self.name,
            "role": "service",
            "tag": tag,
            "digest": own,
            "short": self.short,
            "argv": argv,
            "environment": environment,
            "log": layout.home().join(format!("logs/{}.log", self.name)),
            "answers": self.answers,
        })
    }
}
