//! The store of a cluster: where it is, and a client with its keys.

use secrecy::SecretString;

use crate::cli::app::App;
use crate::cli::target::{Head, Target};
use crate::cluster;
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::host::Tunnel;
use crate::name::Key;
use crate::provider::Runtime;
use crate::s3::Client;
use crate::spec::external_credentials;
use crate::util::fs;

/// The region of a store that gpucl starts.
const REGION: &str = "us-east-1";

/// A client of the store, and the way to it.
pub(super) struct Opened {
    pub(super) client: Client,
    /// The buckets that the spec names.
    pub(super) buckets: Vec<String>,
    way: Option<(Tunnel, Head)>,
}

impl Opened {
    pub(super) async fn open(app: &App) -> Result<Self> {
        let target = Target::choose(app)?;
        let state = &target.known.state;
        let spec = state.spec.as_ref().ok_or_else(|| cluster::not_running(state))?;
        let Some(store) = spec.services().object_store.settings() else {
            return Err(Error::new(ErrorKind::NotFound, "use the object store")
                .because(format!("the cluster {} has none", target.name))
                .hint("add to its spec, then run `gpucl up`: services: {object_store: true}"));
        };
        if let Some(external) = &store.external {
            let keys = external_credentials(&external.credentials_file, &external.profile)?;
            let client = Client::new(&external.endpoint, &external.region, &keys)?;
            return Ok(Self { client, buckets: store.buckets, way: None });
        }
        target.access()?;
        let port = target.head_ports()?.object_store;
        if port == 0 {
            return Err(Error::new(ErrorKind::NotFound, "use the object store")
                .because("it was not started yet")
                .hint(format!("gpucl up -c {}", target.name)));
        }
        let keys = keys(&target)?;
        let Some(head) = target.head(app).await? else {
            let client = Client::new(&format!("http://127.0.0.1:{port}"), REGION, &keys)?;
            return Ok(Self { client, buckets: store.buckets, way: None });
        };
        // With several hosts, containers publish it on the private address of the head's host.
        let address = match spec.runtime {
            Runtime::Docker if spec.hosts.len() > 1 => state.host(&Key::host(0)).and_then(|host| host.address.clone()),
            Runtime::Docker | Runtime::Native => None,
        };
        let there = address.unwrap_or_else(|| "localhost".to_owned());
        let tunnel = Tunnel::open_to(&head.ssh, (&there, port), 0).await?;
        let client = Client::new(&format!("http://{}", tunnel.local()), REGION, &keys)?;
        Ok(Self { client, buckets: store.buckets, way: Some((tunnel, head)) })
    }

    pub(super) async fn close(self) {
        if let Some((tunnel, head)) = self.way {
            tunnel.close().await;
            head.ssh.close().await;
        }
    }
}

/// The keys of the cluster's own store.
fn keys(target: &Target) -> Result<SecretString> {
    let read = |name: &str| {
        let path = target.folder().join("secrets").join(name);
        let text = fs::read_text_within(&path, fs::RECORD_LIMIT);
        text.doing(ErrorKind::State, || format!("read the keys of the object store in {}", path.display()))
    };
    let (user, password) = (read("object_store_user")?, read("object_store_password")?);
    let text = format!("aws_access_key_id = {}\naws_secret_access_key = {}\n", user.trim(), password.trim());
    Ok(SecretString::from(text))
}
