//! The pages of a cluster whose head is reached by SSH: each on its own port of this machine, the same at every call.

use super::{DASHBOARD, Login, Opened, Shown, ray_page, tell_moved};
use crate::cli::app::App;
use crate::cli::portal::{self, Portal, PortalMemory};
use crate::cli::target::{Head, Target};
use crate::cluster;
use crate::error::{Error, ErrorKind, Result};
use crate::host::Tunnel;
use crate::name::Key;
use crate::runtime::project::{self, Page, Pages};
use crate::util::{ports, random};

/// The name of the way for Ray's client, which is no page.
const CLIENT: &str = "client";
/// Ray's own pages show this one within themselves, and know its address from their start.
const EMBEDDED: &str = "grafana";
/// The letters of the key of a page that was never opened.
const KEY_LENGTH: usize = 32;

/// Opens all of them.
pub(super) async fn open(app: &App, port: Option<u16>, target: &Target) -> Result<Opened> {
    // It says it when nothing runs.
    target.access()?;
    let state = &target.known.state;
    let not_running = || cluster::not_running(state);
    let spec = state.spec.as_ref().ok_or_else(not_running)?;
    let places: Pages = state.note(&Key::project(0), "pages").ok_or_else(not_running)?;
    let ports = target.head_ports()?;
    let head = target.head(app).await?.ok_or_else(not_running)?;
    let mut opened = Opened { pages: Vec::new(), client: None, portals: Vec::new(), tunnels: Vec::new(), head: None };
    for page in project::of(spec.runtime).pages(spec, &Key::host(0), ports) {
        let place = places.get(&page.name).copied().unwrap_or_default();
        let (url, login) = if page.name == DASHBOARD {
            (dashboard(app, target, &head, &page, port, place, &mut opened).await?, None)
        } else {
            let tunnel = tunnel(app, &head, &page.name, page.port, place).await?;
            let url = format!("http://{}", tunnel.local());
            opened.tunnels.push(tunnel);
            (url, Some(login(target, &page)))
        };
        opened.pages.push(Shown { name: page.name, url, login });
    }
    let place = places.get(CLIENT).copied().unwrap_or_default();
    let tunnel = tunnel(app, &head, CLIENT, ports.client, place).await?;
    opened.client = Some(format!("ray://{}", tunnel.local()));
    opened.tunnels.push(tunnel);
    opened.head = Some(head);
    Ok(opened)
}

/// Ray's own page, behind the portal that logs in; hands back its address.
async fn dashboard(
    app: &App,
    target: &Target,
    head: &Head,
    page: &Page,
    port: Option<u16>,
    place: u16,
    opened: &mut Opened,
) -> Result<String> {
    let way = Tunnel::open(&head.ssh, page.port, 0).await?;
    let file = target.portal_file()?;
    let mut memory = portal::load(&file)?;
    let key = match memory.get(DASHBOARD) {
        Some(known) => known.key.clone(),
        None => random::letters(KEY_LENGTH)?.into(),
    };
    let remembered = PortalMemory { port: place, key };
    let portal = Portal::open(ray_page(target, way.local().to_string())?, Some(remembered), port).await?;
    tell_moved(app, &portal);
    memory.insert(DASHBOARD.to_owned(), portal.memory().clone());
    portal::save(&file, &memory)?;
    let url = portal.url();
    opened.tunnels.push(way);
    opened.portals.push(portal);
    Ok(url)
}

/// A way to a port of the head's host, at its own place where that can be had.
async fn tunnel(app: &App, head: &Head, name: &str, port: u16, place: u16) -> Result<Tunnel> {
    match Tunnel::open(&head.ssh, port, place).await {
        Err(_) if !ports::is_free(place) && name == EMBEDDED => {
            Err(Error::new(ErrorKind::Host, format!("open the page {name}"))
                .because(format!(
                    "port {place} of this machine, at which Ray's pages look for it, is in use by {}",
                    holder(place)
                ))
                .hint("end that program; or take a new port for it: gpucl down, then gpucl up"))
        }
        Err(_) if !ports::is_free(place) => {
            app.ui.status(format_args!(
                "port {place} of the page {name} is in use by {}; its address is another one this time",
                holder(place)
            ));
            Tunnel::open(&head.ssh, port, 0).await
        }
        tunnel => tunnel,
    }
}

/// Who has a port, in words.
fn holder(port: u16) -> String {
    ports::holder(port)
        .map_or_else(|| "a program of another user".to_owned(), |(pid, command)| format!("process {pid} ({command})"))
}

fn login(target: &Target, page: &Page) -> Login {
    let file = |name: &String| target.folder().join("secrets").join(name);
    Login { user: page.user.clone(), user_file: page.user_secret.as_ref().map(file), password_file: file(&page.secret) }
}
