//! `gpucl dashboard`.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::app::App;
use crate::cli::exit_code;
use crate::cli::portal::{self, Opener, Page, Portal};
use crate::cli::target::Target;
use crate::error::{Doing as _, ErrorKind, Result};
use crate::util::human;

/// The arguments of `dashboard`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print the addresses only
    #[arg(long)]
    no_open: bool,
    /// The port of the Ray dashboard's page; else the one of the last call, else a free one
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
}

pub(crate) async fn run(app: &App, args: Args) -> Result<u8> {
    let target = Target::choose(app)?;
    let file = target.portal_file()?;
    let mut ends = Ends::listen()?;
    let mut memory = portal::load(&file)?;
    let mut portals = Vec::new();
    for (number, page) in pages(&target)?.into_iter().enumerate() {
        let name = page.name.clone();
        let port = args.port.filter(|_| number == 0);
        let open = Portal::open(page, memory.get(&name).cloned(), port).await?;
        if let Some(port) = open.displaced() {
            app.ui.status(format_args!(
                "port {port} of the page {name} is in use by another program; its address is a new one from now on"
            ));
        }
        memory.insert(name, open.memory().clone());
        portals.push(open);
    }
    portal::save(&file, &memory)?;
    let opened = show(app, &portals, args.no_open);
    ends.wait().await;
    drop(opened);
    let count = human::count(portals.len(), "page");
    for portal in portals {
        portal.close().await;
    }
    app.ui.status(format_args!("closed: {count}, no listener is left"));
    Ok(exit_code::DONE)
}

/// Ctrl-C, or what the system or a closed terminal sends; listened for from the beginning.
struct Ends([Signal; 3]);

impl Ends {
    fn listen() -> Result<Self> {
        let listen = |kind| signal(kind).doing(ErrorKind::Internal, || "listen for Ctrl-C".to_owned());
        Ok(Self([listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?, listen(SignalKind::hangup())?]))
    }

    async fn wait(&mut self) {
        let [interrupted, terminated, hung_up] = &mut self.0;
        tokio::select! {
            _ = interrupted.recv() => {}
            _ = terminated.recv() => {}
            _ = hung_up.recv() => {}
        }
    }
}

/// The pages of a cluster.
fn pages(target: &Target) -> Result<Vec<Page>> {
    let access = target.access()?;
    let upstream = access.dashboard_url.trim_start_matches("http://").trim_end_matches('/').to_owned();
    let bearer = SecretString::from(format!("Bearer {}", target.token()?.expose_secret().trim()));
    Ok(vec![Page { name: "dashboard".to_owned(), upstream, inject: Some(("Authorization".to_owned(), bearer)) }])
}

/// Prints the addresses and opens the first one.
fn show(app: &App, portals: &[Portal], no_open: bool) -> Option<Opener> {
    if app.json() {
        let pages: BTreeMap<&str, String> = portals.iter().map(|portal| (portal.name(), portal.url())).collect();
        app.ui.json(&json!({"v": 1, "type": "pages", "pages": pages}));
    } else {
        portals.iter().for_each(|portal| app.ui.data(format_args!("{:<10} {}", portal.name(), portal.url())));
    }
    let opened = match (no_open, browser(app), portals.first()) {
        (false, Some(program), Some(first)) => {
            let opened = portal::open_browser(program, &first.url(), &app.paths.runtime);
            if let Err(error) = &opened {
                app.ui.status(format_args!("no browser was opened: {error}"));
            }
            opened.ok()
        }
        _ => None,
    };
    app.ui.status("Ctrl-C closes them");
    opened
}

/// The program that opens a browser, where there is a screen for one.
fn browser(app: &App) -> Option<&'static str> {
    let screen = |name| app.variable(name).is_some_and(|value| !value.is_empty());
    if cfg!(target_os = "macos") {
        Some("open")
    } else {
        (screen("DISPLAY") || screen("WAYLAND_DISPLAY")).then_some("xdg-open")
    }
}
