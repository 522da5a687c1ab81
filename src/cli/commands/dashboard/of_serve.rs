//! The pages of applications of Serve: one local port, which they keep, and an address for each application.

use secrecy::{ExposeSecret as _, SecretString};

use super::{Opened, Shown, report_moved};
use crate::cli::app::App;
use crate::cli::portal::{Page, Portal, PortalRun, Upstream};
use crate::cli::target::Target;
use crate::cluster::serve::{Way, port};
use crate::error::Result;
use crate::ray::serve_key;

/// The name of the page.
const SERVE: &str = "serve";

/// Opens a page for each application, if Serve has any. The portal adds the key to them.
pub(super) async fn open(app: &App, run: &PortalRun, target: &Target, opened: &mut Opened) -> Result<()> {
    let state = &target.known.state;
    if port(state).is_err() {
        return Ok(());
    }
    // What does not answer has no pages; the dashboard beside it says more.
    let Ok(serving) = target.client(app).await?.serving().await else { return Ok(()) };
    let served = serving.applications.iter().filter_map(|(name, it)| Some((name, it.route_prefix.as_deref()?)));
    let served: Vec<(&String, &str)> = served.collect();
    if served.is_empty() {
        return Ok(());
    }
    let way = Way::open(state, target.machines(app).await?).await?;
    let bearer = SecretString::from(format!("Bearer {}", serve_key(&target.token()?).expose_secret()));
    let page = Page {
        name: SERVE.to_owned(),
        address: way.address().to_owned(),
        upstream: Upstream::Here(way.address().to_owned()),
        inject: Some(bearer.clone()),
        credentials: vec![bearer],
        is_shown_by_others: false,
        grafana: None,
    };
    // As for the other pages: of a cluster on this machine they have any port.
    let places = state.pages().filter(|_| target.is_remote());
    let portal = Portal::open(run, page, places.and_then(|places| places.get(SERVE).copied()), None).await?;
    if let Some(port) = portal.displaced() {
        report_moved(app, SERVE, port);
    }
    for (name, prefix) in served {
        opened.pages.push(Shown { name: format!("{SERVE} {name}"), url: portal.url_of(prefix), login: None });
    }
    opened.portals.push(portal);
    opened.to_serve = Some(way);
    Ok(())
}
