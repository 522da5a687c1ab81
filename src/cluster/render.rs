//! `render`: the files that `up` would write, by the code that writes them. Reads, writes nothing.

use std::path::PathBuf;

use secrecy::SecretString;

use super::Settings;
use super::processes::desired_of;
use super::processes::layout;
use crate::error::{Doing as _, ErrorKind, Result};
use crate::plan::{NodeRole, NodeSpec};
use crate::playbook;
use crate::runtime::native::{self, HeadAddress, NodePorts, Prepared};
use crate::spec::Loaded;
use crate::state::{ClusterState, Store};

/// One file, by its path in the folder of all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedFile {
    /// Its path, such as `host-0/node.py`.
    pub path: PathBuf,
    /// What is in it.
    pub bytes: Vec<u8>,
}

/// What stands for the token; a secret is rendered nowhere.
const NO_TOKEN: &str = "the token of the cluster; up makes it\n";

const README: &str = "\
What `gpucl up` writes and runs; `gpucl render` made it, and nothing was started.

plan.txt                what `up` would do, as `gpucl plan` shows it
host-N/prepare.sh       the program that is sent to the host, in one piece
host-N/*.py, secrets/   the files that it delivers there, once more, to be read
host-N/nodes/*.json     what each node is started with

What is known only once a cluster runs is stood in for:
- The token. A secret is never rendered.
- The ports are those of the running cluster, or those that `up` tries first; it takes others where they are in use.
- The owner in every tag is 00000000 until the first `up` has made one.
- RAY_ENVIRONMENT in a path, and GPU-N: what the host tells when it is prepared.
";

/// Works out all files that `up` would write for this spec.
pub async fn render(settings: &Settings, loaded: &Loaded) -> Result<Vec<RenderedFile>> {
    let spec = &loaded.spec;
    if super::is_deployed(spec) {
        return super::render_projects::render_projects(settings, loaded);
    }
    let scope = settings.scope(&spec.name);
    let provider = settings.provider(spec)?;
    let token = SecretString::from(NO_TOKEN.to_owned());
    let stage = native::preparation(spec, &settings.library, &settings.paths.cache, &token)?;
    let desired = desired_of(loaded, &scope, provider.as_ref(), &stage).await?;
    let known = Store::open(&settings.paths, &spec.name)?
        .map_or_else(|| ClusterState::new(&scope, jiff::Timestamp::now()), |store| store.state().clone());
    let plan = super::plan(settings, loaded).await?;
    let plan = plan.plan;
    let plan = if plan.is_empty() { "nothing to change\n".to_owned() } else { plan.to_string() };

    let mut files = Vec::new();
    let mut put = |path: String, bytes: Vec<u8>| files.push(RenderedFile { path: path.into(), bytes });
    put("README.txt".to_owned(), README.into());
    put("plan.txt".to_owned(), plan.into());
    for preparation in &desired.preparations {
        let folder = preparation.host.display_name();
        let home = layout(&settings.paths, &scope, &preparation.host).home().display().to_string();
        put(format!("{folder}/prepare.sh"), playbook::program_text(&home, &stage)?.into());
        for file in &stage.files {
            put(format!("{folder}/{}", file.path), file.bytes.clone());
        }
    }
    let mut taken: Vec<NodePorts> = Vec::new();
    for node in &desired.nodes {
        let ports = known
            .note(&node.key, "ports")
            .unwrap_or_else(|| native::first_choice(&scope, &node.key, &taken, node.dashboard_port));
        taken.push(ports);
        let Some(head) = taken.first().map(|head| HeadAddress { gcs: head.gcs() }) else { continue };
        let ray_env = known
            .note::<Prepared>(&node.host, "prepared")
            .map_or_else(|| settings.paths.cache.join("environments/RAY_ENVIRONMENT"), |prepared| prepared.ray_env);
        let layout = layout(&settings.paths, &scope, &node.host);
        let launch = native::launch(&scope, node, &layout, &ray_env, ports, head, &gpus(node, &known));
        let bytes = serde_json::to_vec_pretty(&launch)
            .doing(ErrorKind::Internal, || format!("render {}", node.key.display_name()))?;
        put(format!("{}/nodes/{}.json", node.host.display_name(), node.key), bytes);
    }
    debug_assert!(desired.nodes.first().is_none_or(|node| node.role == NodeRole::Head), "the head is the first");
    Ok(files)
}

/// The GPUs that a node owns: by their UUIDs where the host has told them.
fn gpus(node: &NodeSpec, known: &ClusterState) -> Vec<String> {
    let Some(first) = node.first_gpu else { return Vec::new() };
    let uuids: Vec<String> = known.note(&node.host, "gpus").unwrap_or_default();
    let uuid = |number: u32| uuids.get(number as usize).cloned().unwrap_or_else(|| format!("GPU-{number}"));
    (first..first + node.gpus).map(uuid).collect()
}
