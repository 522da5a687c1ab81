//! `gpucl dashboard`.

mod remote;

use std::collections::BTreeMap;
use std::path::PathBuf;

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::app::App;
use crate::cli::exit_code;
use crate::cli::output::Table;
use crate::cli::portal::{self, Opener, Page, Portal, Run, Upstream};
use crate::cli::target::{Head, Target};
use crate::error::{Doing as _, ErrorKind, Result};
use crate::host::Tunnel;
use crate::util::{human, ports};

/// The name of Ray's own page.
const DASHBOARD: &str = "dashboard";

/// The arguments of `dashboard`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print the addresses only
    #[arg(long)]
    no_open: bool,
    /// The port of the Ray dashboard's page; else the one that the cluster keeps for it, else a free one
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Addresses at 127.0.0.1, for a browser that finds no names below localhost: other servers of this machine that it visits get the key too
    #[arg(long)]
    plain: bool,
}

pub(crate) async fn run(app: &App, args: Args) -> Result<u8> {
    let target = Target::choose(app)?;
    let mut ends = Ends::listen()?;
    // What is opened is closed also when Ctrl-C comes in the middle of it.
    let opened = tokio::select! {
        opened = open(app, &args, &target) => opened?,
        () = ends.wait() => return Ok(exit_code::DONE),
    };
    show(app, &opened);
    if args.plain {
        app.ui.status(
            "by --plain the browser sends the key to every server of this machine that it visits, whoever runs it",
        );
    }
    let browser = browse(app, &opened, args.no_open);
    app.ui.status("Ctrl-C closes them");
    ends.wait().await;
    drop(browser);
    let count = human::count(opened.pages.len(), "page");
    opened.close().await;
    app.ui.status(format_args!("closed: {count}, no listener is left"));
    Ok(exit_code::DONE)
}

/// A page that answers now.
pub(super) struct Shown {
    name: String,
    url: String,
    /// Who logs in, and the file that holds the password; none where the portal logs in by itself.
    login: Option<Login>,
}

/// How one logs in to a page.
pub(super) struct Login {
    user: Option<String>,
    user_file: Option<PathBuf>,
    password_file: PathBuf,
}

/// All that is open.
pub(super) struct Opened {
    pages: Vec<Shown>,
    client: Option<String>,
    portals: Vec<Portal>,
    tunnels: Vec<Tunnel>,
    head: Option<Head>,
}

impl Opened {
    async fn close(self) {
        for portal in self.portals {
            portal.close().await;
        }
        for tunnel in self.tunnels {
            tunnel.close().await;
        }
        if let Some(head) = self.head {
            head.ssh.clone().close().await;
        }
    }
}

async fn open(app: &App, args: &Args, target: &Target) -> Result<Opened> {
    let run = if args.plain { Run::plain()? } else { Run::named()? };
    match target.is_remote() {
        true => remote::open(app, &run, args.port, target).await,
        false => here(&run, args.port, target).await,
    }
}

/// The page of a cluster on this machine.
async fn here(run: &Run, port: Option<u16>, target: &Target) -> Result<Opened> {
    let access = target.access()?;
    let address = access.dashboard_url.trim_start_matches("http://").trim_end_matches('/').to_owned();
    let portal = Portal::open(run, ray_page(target, address.clone(), Upstream::Here(address))?, None, port).await?;
    let pages = vec![Shown { name: DASHBOARD.to_owned(), url: portal.url(), login: None }];
    Ok(Opened { pages, client: None, portals: vec![portal], tunnels: Vec::new(), head: None })
}

/// Ray's own dashboard, into which the portal logs in.
fn ray_page(target: &Target, address: String, upstream: Upstream) -> Result<Page> {
    let bearer = SecretString::from(format!("Bearer {}", target.token()?.expose_secret().trim()));
    Ok(Page {
        name: DASHBOARD.to_owned(),
        address,
        upstream,
        inject: Some(bearer.clone()),
        credentials: vec![bearer],
        is_shown_by_others: false,
        grafana: None,
    })
}

fn tell_moved(app: &App, name: &str, port: u16) {
    app.ui.status(format_args!(
        "port {port} of the page {name} is in use by {}; it has another one this time",
        holder(port)
    ));
}

/// Who has a port, in words.
fn holder(port: u16) -> String {
    ports::holder(port)
        .map_or_else(|| "a program of another user".to_owned(), |(pid, command)| format!("process {pid} ({command})"))
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

/// Prints the addresses, and where the passwords are; never a password.
fn show(app: &App, opened: &Opened) {
    if app.json() {
        let pages: BTreeMap<&str, &str> =
            opened.pages.iter().map(|page| (page.name.as_str(), page.url.as_str())).collect();
        let login = |login: &Login| json!({"user": login.user, "user_file": login.user_file, "password_file": login.password_file});
        let logins: BTreeMap<&str, Value> =
            opened.pages.iter().filter_map(|page| Some((page.name.as_str(), login(page.login.as_ref()?)))).collect();
        app.ui.json(&json!({"v": 1, "type": "pages", "pages": pages, "logins": logins, "client": opened.client}));
        return;
    }
    if opened.client.is_none() {
        opened.pages.iter().for_each(|page| app.ui.data(format_args!("{:<10} {}", page.name, page.url)));
        return;
    }
    let mut table = Table::new(&["page", "address", "user", "password is in"]);
    let path = |path: &PathBuf| path.display().to_string();
    for page in &opened.pages {
        let (user, password) = match &page.login {
            None => (String::new(), "(logged in by this address)".to_owned()),
            Some(login) => {
                let user_file = login.user_file.as_ref().map(|file| format!("in {}", path(file)));
                (login.user.clone().or(user_file).unwrap_or_default(), path(&login.password_file))
            }
        };
        table.row([page.name.clone(), page.url.clone(), user, password]);
    }
    if let Some(client) = &opened.client {
        table.row(["client", client, "", "(the token: gpucl env)"]);
    }
    app.ui.data(table);
}

/// Opens the first page in the browser.
fn browse(app: &App, opened: &Opened, no_open: bool) -> Option<Opener> {
    let (false, Some(program), Some(first)) = (no_open, browser(app), opened.pages.first()) else { return None };
    let opened = portal::open_browser(program, &first.url, &app.paths.runtime);
    if let Err(error) = &opened {
        app.ui.status(format_args!("no browser was opened: {error}"));
    }
    opened.ok()
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
