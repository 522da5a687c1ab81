//! Selects the cluster of a command, and connects to it.

use std::path::Path;
use std::sync::Arc;

use tokio::sync::OnceCell;

use crate::cli::app::App;
use crate::cli::command_error::usage;
use crate::cli::spec_args;
use crate::cluster::{self, Known, Machines, Pods, RayClient};
use crate::error::{Error, ErrorKind, Result};
use crate::host::SshHost;
use crate::name::{ClusterName, Key};
use crate::providers;
use crate::ray::Access;
use crate::spec;
use crate::state::HostPorts;
use crate::util::fs::resolve;
use crate::util::human;

/// The cluster that a command works on.
pub(crate) struct Target {
    pub(crate) name: ClusterName,
    /// Its state, and the report of its status.
    pub(crate) known: Known,
    access: Result<Access>,
    folder: std::path::PathBuf,
    machines: OnceCell<Arc<Machines>>,
}

/// A connection to the head's host.
pub(crate) struct Head {
    pub(crate) ssh: SshHost,
    /// Keeps the folder of the SSH socket alive.
    _machines: Arc<Machines>,
}

impl Target {
    /// Selects the cluster of a command that only shows what is known. One on another machine with this home may be it.
    pub(crate) fn anywhere(app: &App) -> Result<Self> {
        Self::known(app, name(app)?)
    }

    /// Selects the cluster: `-c`, `GPUCL_CLUSTER`, `./cluster.yaml` or `./cluster.yml`, else the only one.
    pub(crate) fn choose(app: &App) -> Result<Self> {
        Self::of(app, name(app)?)
    }

    /// The cluster of this name.
    pub(crate) fn of(app: &App, name: ClusterName) -> Result<Self> {
        let target = Self::known(app, name)?;
        cluster::refuse_other_machine(&app.paths, &target.known.state, "use the cluster")?;
        Ok(target)
    }

    fn known(app: &App, name: ClusterName) -> Result<Self> {
        let known = cluster::status(&app.paths, &name)?.ok_or_else(|| cluster::unknown(&app.paths, &name))?;
        let access = cluster::access(&app.paths, &known.state);
        if let Some(ends) = known.report.ends {
            app.ui.status(format!("{name}: its hosts will be taken away at {}", human::in_time(ends)));
        }
        Ok(Self { folder: app.paths.cluster(&name), name, known, access, machines: OnceCell::new() })
    }

    /// Its endpoints; an error if it does not run.
    pub(crate) fn access(&self) -> Result<Access> {
        self.access.clone()
    }

    /// A Ray client with the cluster's token; an error if the cluster does not run.
    pub(crate) async fn client(&self, app: &App) -> Result<RayClient> {
        self.access()?;
        self.machines(app).await?.ray(&self.known.state, self.token()?).await
    }

    /// Its machines.
    pub(crate) async fn machines(&self, app: &App) -> Result<&Arc<Machines>> {
        let open = async || {
            let context = app.provider_context(app.plain_events());
            let (state, environment) = (&self.known.state, app.node_environment());
            Machines::of(&app.paths, state, &context, environment, self.access()).await.map(Arc::new)
        };
        self.machines.get_or_try_init(open).await
    }

    /// Its nodes, if it runs on a platform.
    pub(crate) async fn pods(&self, app: &App) -> Result<Option<Arc<Pods>>> {
        Ok(self.machines(app).await?.pods().cloned())
    }

    /// Connects to the head's host; `None` if that is this machine.
    pub(crate) async fn head(&self, app: &App) -> Result<Option<Head>> {
        let machines = self.machines(app).await?;
        let head = machines.head_by_ssh().await?;
        Ok(head.map(|ssh| Head { ssh, _machines: Arc::clone(machines) }))
    }

    /// Its nodes run on other machines.
    pub(crate) fn is_remote(&self) -> bool {
        !self.known.state.is_here()
    }

    /// The ports that its project on the head's host uses.
    pub(crate) fn head_ports(&self) -> Result<HostPorts> {
        let ports = self.known.state.host(&Key::host(0)).and_then(|host| host.ports.clone());
        ports.ok_or_else(|| cluster::not_running(&self.known.state))
    }

    /// The cluster's token.
    pub(crate) fn token(&self) -> Result<secrecy::SecretString> {
        crate::secret::ray_token(&self.folder)?.ok_or_else(|| {
            Error::new(ErrorKind::State, format!("connect to the cluster {}", self.name))
                .because("its token is missing")
                .hint(format!("`gpucl down -c {}`, then `gpucl up`, makes a new cluster with a new token", self.name))
        })
    }

    /// Its state folder.
    pub(crate) fn folder(&self) -> &std::path::Path {
        &self.folder
    }
}

/// Refuses to choose a cluster by the spec of a folder if it was brought up from another one: a stranger's
/// folder does not decide which of the user's clusters is meant.
fn refuse_another(app: &App, name: &ClusterName, file: &Path) -> Result<()> {
    let Some(known) = cluster::status(&app.paths, name)? else { return Ok(()) };
    // Another file of the same folder is of the same origin, and a link to one of another folder is not.
    let folder = resolve(&app.here).ok().flatten();
    let of_file = resolve(file).ok().flatten().and_then(|file| file.parent().map(Path::to_owned));
    let is_it =
        |before: &String| folder.is_some() && folder == of_file && folder.as_deref() == Path::new(before).parent();
    if known.state.spec_path.as_ref().is_some_and(is_it) {
        return Ok(());
    }
    let before = known.state.spec_path.as_deref().unwrap_or("standard input");
    let here = file.file_name().unwrap_or_default().display();
    Err(usage("choose a cluster", format!("the {here} here names `{name}`, but that cluster is from {before}"))
        .hint(format!("if that one is meant, name it: -c {name}")))
}

/// The name of the selected cluster.
pub(crate) fn name(app: &App) -> Result<ClusterName> {
    if let Some(name) = &app.cluster {
        let name: ClusterName = name.parse().map_err(|error| usage("choose a cluster", error))?;
        if name.is_reserved() {
            return Err(usage(
                "choose a cluster",
                format!("`{name}` is not a cluster: the name is reserved for leases outside of clusters"),
            )
            .hint("gpucl lease list"));
        }
        return Ok(name);
    }
    if let Some(here) = spec_args::in_folder(&app.here) {
        let name = spec::load_alone(&here, &providers::find)?.spec.name;
        refuse_another(app, &name, &here)?;
        return Ok(name);
    }
    let known = cluster::list(&app.paths)?;
    match known.as_slice() {
        [one] => Ok(one.state.name.clone()),
        [] => Err(Error::new(ErrorKind::NotFound, "choose a cluster")
            .because("there are no clusters")
            .hint("gpucl up cluster.yaml   # bring one up")),
        several => {
            let names: Vec<String> =
                several.iter().map(|known| format!("{} ({})", known.state.name, known.report.phase)).collect();
            Err(usage("choose a cluster", format!("there are several: {}", names.join(", ")))
                .hint(format!("name one: -c {}", several[0].state.name)))
        }
    }
}
