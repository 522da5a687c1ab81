//! The object store beside the nodes: what nodes and their jobs are given to use it, and, where gpucl starts it, the
//! process and its files.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::LOOPBACK;
use super::claim::{has_store, store_ports};
use super::service::{Service, isolated};
use crate::error::{Doing as _, ErrorKind, Result};
use crate::host::StageFile;
use crate::name::Key;
use crate::playbook::{KnownError, Step};
use crate::render::quote;
use crate::runtime::native::Layout;
use crate::runtime::project::{DeployRequest, HostInput};
use secrecy::ExposeSecret as _;

/// Placeholders for paths known only on the host; `host.py` replaces them.
const RAY_ENV: &str = "@ray_env@";
const PROGRAM: &str = "@store@";

/// How long the store may take to answer and to make its buckets, in seconds.
pub(super) const READY_LIMIT: u32 = 90;

/// The URL and the region of the store that nodes use; `None` if the cluster has none.
pub(super) fn place(request: &DeployRequest<'_>, blocks: &BTreeMap<Key, u16>) -> Option<(String, String)> {
    let store = request.spec.services().object_store.settings()?;
    Some(match store.external {
        Some(external) => (external.endpoint, external.region),
        None => (format!("http://{LOOPBACK}:{}", store_ports(blocks).s3()), "us-east-1".to_owned()),
    })
}

/// The variables that point programs to the store.
pub(super) fn environment(
    request: &DeployRequest<'_>,
    layout: &Layout,
    blocks: &BTreeMap<Key, u16>,
) -> Vec<(&'static str, String)> {
    let Some((endpoint, region)) = place(request, blocks) else { return Vec::new() };
    vec![
        ("AWS_ENDPOINT_URL", endpoint),
        ("AWS_DEFAULT_REGION", region.clone()),
        ("AWS_REGION", region),
        ("AWS_SHARED_CREDENTIALS_FILE", layout.store_credentials().display().to_string()),
    ]
}

/// The store, as input to the probe.
pub(super) fn want(request: &DeployRequest<'_>, blocks: &BTreeMap<Key, u16>) -> Option<Value> {
    let store = request.spec.services().object_store.settings()?;
    let (endpoint, region) = place(request, blocks)?;
    Some(json!({
        "endpoint": endpoint,
        "region": region,
        "buckets": store.buckets,
        "make": store.external.is_none(),
    }))
}

/// The files that a host needs of the store.
pub(super) fn files(request: &DeployRequest<'_>, host: &HostInput) -> Result<Vec<StageFile>> {
    let mut files = Vec::new();
    if request.spec.services().object_store.settings().is_none() {
        return Ok(files);
    }
    let secret =
        |path: &str, text: String| StageFile { path: format!("secrets/{path}"), mode: 0o600, bytes: text.into_bytes() };
    let text = |name: &str| request.secrets.text(name);
    files.push(secret("aws_credentials", text("aws_credentials")));
    if has_store(request, host) {
        let identity = crate::secret::certificate(request.secrets.object_store_identity.expose_secret())?;
        files.push(secret("store_certificate.pem", identity.certificate));
        files.push(secret("store_key.pem", identity.key));
        let (bytes, _) = request.library.read("templates/ray-native/store.py")?;
        files.push(StageFile { path: "store.py".to_owned(), mode: 0o600, bytes });
    }
    Ok(files)
}

/// The store as a process for the host's supervisor; `None` if it does not run on this host.
pub(super) fn launch(
    request: &DeployRequest<'_>,
    host: &HostInput,
    layout: &Layout,
    blocks: &BTreeMap<Key, u16>,
) -> Result<Option<Value>> {
    if !has_store(request, host) {
        return Ok(None);
    }
    let ports = store_ports(blocks);
    let (sockets, short) = layout.store_sockets();
    let path = |path: std::path::PathBuf| path.display().to_string();
    let mut argv: Vec<String> = isolated(&format!("{RAY_ENV}/bin/python")).into();
    argv.extend([path(layout.store_script()), PROGRAM.to_owned(), path(layout.home().to_owned())]);
    argv.extend([ports.base.to_string(), path(sockets)]);
    let files = &files(request, host)?;
    let service = Service {
        key: Key::object_store(),
        name: "object-store".to_owned(),
        short,
        argv,
        files,
        answers: vec![ports.s3()],
    };
    Ok(Some(service.launch(request, host, layout)))
}

/// The step that waits for the store and makes its buckets; `None` on hosts without it.
pub(super) fn step(request: &DeployRequest<'_>, host: &HostInput, blocks: &BTreeMap<Key, u16>) -> Result<Option<Step>> {
    let Some(want) = want(request, blocks).filter(|_| has_store(request, host)) else { return Ok(None) };
    let endpoint = want["endpoint"].as_str().unwrap_or_default().to_owned();
    let all = json!({
        "addresses": {"object-store": format!("{endpoint}/healthz")},
        "store": want,
        "timeout_s": READY_LIMIT,
    });
    let all = serde_json::to_string(&all).doing(ErrorKind::Internal, || "render the object store".to_owned())?;
    Ok(Some(Step {
        name: "make the buckets".to_owned(),
        run: format!(
            "ray_env=$(sed -n 's/^ray_env //p' \"$home/prepared/prepare\")\n\
             GPUCL_SECRETS=$home/secrets\nexport GPUCL_SECRETS\n\
             exec \"$ray_env/bin/python\" -I -B \"$home/cluster.py\" wait {}\n",
            quote(&all)
        ),
        timeout: Some(std::time::Duration::from_secs(u64::from(READY_LIMIT) + 30)),
        hint: Some(format!("its log: gpucl logs object-store -c {}", request.scope.cluster)),
        errors: vec![KnownError {
            matches: "cannot be made|no answer in time from".to_owned(),
            says: "{line}".to_owned(),
            hint: None,
            retry: false,
        }],
        ..Step::default()
    }))
}
