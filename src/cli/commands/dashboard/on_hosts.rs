//! The pages of a cluster on hosts: each on its own local port, with a remote head the same one in every run.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret as _, SecretString};

use super::{CLIENT, DASHBOARD, Login, Opened, Shown, ray_page, report_moved};
use crate::cli::app::App;
use crate::cli::portal::{self, Portal, PortalRun, Upstream};
use crate::cli::target::{Head, Target};
use crate::cluster;
use crate::error::{Doing as _, ErrorKind, Result};
use crate::host::{Tunnel, Way};
use crate::name::Key;
use crate::runtime;
use crate::runtime::project::Page;
use crate::util::ports;

/// The Ray dashboard embeds this page.
const GRAFANA: &str = "grafana";
/// Its login is one of HTTP, which a browser would ask for.
const MLFLOW: &str = "mlflow";

/// Opens all pages, and a tunnel for the Ray client.
pub(super) async fn open(app: &App, run: &PortalRun, port: Option<u16>, target: &Target) -> Result<Opened> {
    let not_running = || cluster::not_running(&target.known.state);
    let head = target.head(app).await?.ok_or_else(not_running)?;
    let mut opened = open_pages(app, run, port, target, Some(&head)).await?;
    let place = target.known.state.pages().and_then(|places| places.get(CLIENT).copied()).unwrap_or_default();
    let tunnel = client(app, &head, target.head_ports()?.client, place).await?;
    opened.client = Some(format!("ray://{}", tunnel.local()));
    opened.tunnels.push(tunnel);
    opened.head = Some(head);
    Ok(opened)
}

/// Opens all pages of a cluster on hosts; those of a cluster on this machine have no head to go through.
pub(super) async fn open_pages(
    app: &App,
    run: &PortalRun,
    port: Option<u16>,
    target: &Target,
    head: Option<&Head>,
) -> Result<Opened> {
    // Fails with a clear error if nothing runs.
    target.access()?;
    let state = &target.known.state;
    let not_running = || cluster::not_running(state);
    let spec = state.spec.as_ref().ok_or_else(not_running)?;
    let places = state.pages().ok_or_else(not_running)?;
    let mut opened = Opened {
        pages: Vec::new(),
        client: None,
        portals: Vec::new(),
        tunnels: Vec::new(),
        bridges: Vec::new(),
        to_serve: None,
        head: None,
    };
    let mut grafana = None;
    let pages = runtime::of(spec.runtime).pages(spec, &Key::host(0), &target.head_ports()?);
    // Ray's page is opened last, since it needs Grafana's address; it is shown first.
    let (first, others): (Vec<Page>, Vec<Page>) = pages.into_iter().partition(|page| page.name == DASHBOARD);
    for page in others.into_iter().chain(first) {
        let (address, place, upstream) = match head {
            Some(head) => {
                let place = places.get(&page.name).copied().unwrap_or(page.port);
                let upstream = Upstream::There(Way::open(&head.ssh, page.port).await?);
                (format!("127.0.0.1:{place}"), Some(place), upstream)
            }
            None => {
                let address = format!("127.0.0.1:{}", page.port);
                (address.clone(), None, Upstream::Here(address))
            }
        };
        let (behind, login) = if page.name == DASHBOARD {
            (portal::Page { grafana: grafana.take(), ..ray_page(target, address, upstream)? }, None)
        } else {
            let behind = service_page(target, &page, address, upstream)?;
            let login = behind.inject.is_none().then(|| login(target, &page));
            (behind, login)
        };
        let asked = port.filter(|_| page.name == DASHBOARD);
        let portal = Portal::open(run, behind, place, asked).await?;
        if let Some(port) = portal.displaced() {
            report_moved(app, &page.name, port);
        }
        if page.name == GRAFANA {
            grafana = Some(portal.prefix());
        }
        let at = if page.name == DASHBOARD { 0 } else { opened.pages.len() };
        opened.pages.insert(at, Shown { name: page.name, url: portal.url(), login });
        opened.portals.push(portal);
    }
    Ok(opened)
}

/// The tunnel for the Ray client, on its usual local port if that is free.
async fn client(app: &App, head: &Head, port: u16, place: u16) -> Result<Tunnel> {
    match Tunnel::open(&head.ssh, port, place).await {
        Err(_) if !ports::is_free(place) => {
            report_moved(app, CLIENT, place);
            Tunnel::open(&head.ssh, port, 0).await
        }
        tunnel => tunnel,
    }
}

/// A page with its own login; that of MLflow is added by the portal, as it has no form.
fn service_page(target: &Target, page: &Page, address: String, upstream: Upstream) -> Result<portal::Page> {
    let credentials = credentials(target, page)?;
    Ok(portal::Page {
        name: page.name.clone(),
        address,
        upstream,
        inject: credentials.first().filter(|_| page.name == MLFLOW).cloned(),
        credentials,
        is_shown_by_others: page.name == GRAFANA,
        grafana: None,
    })
}

/// The `Authorization` values with which programs may open a page. None if its user name is a secret: it has a form.
fn credentials(target: &Target, page: &Page) -> Result<Vec<SecretString>> {
    if page.user_secret.is_some() {
        return Ok(Vec::new());
    }
    let file = target.folder().join("secrets").join(&page.secret);
    let secret = SecretString::from(
        fs_err::read_to_string(file).doing(ErrorKind::State, || format!("open the page {}", page.name))?,
    );
    let secret = secret.expose_secret().trim();
    Ok(match &page.user {
        Some(user) => vec![format!("Basic {}", STANDARD.encode(format!("{user}:{secret}"))).into()],
        None => vec![format!("token {secret}").into(), format!("Bearer {secret}").into()],
    })
}

fn login(target: &Target, page: &Page) -> Login {
    let file = |name: &String| target.folder().join("secrets").join(name);
    Login { user: page.user.clone(), user_file: page.user_secret.as_ref().map(file), password_file: file(&page.secret) }
}
