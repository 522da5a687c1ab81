//! `gpucl dashboard`.

mod of_serve;
mod on_hosts;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::cli::app::App;
use crate::cli::exit_code;
use crate::cli::output::Table;
use crate::cli::portal::{self, Down, Opener, Page, Portal, PortalRun, Question, Upstream};
use crate::cli::signals::Ends;
use crate::cli::target::{Head, Target};
use crate::cluster::serve::Way;
use crate::cluster::{self, Bridge, CLIENT_PORT, DASHBOARD_PORT, Pods, RemotePort, Settings};
use crate::engine::Cancel;
use crate::error::Result;
use crate::host::Tunnel;
use crate::name::ClusterName;
use crate::util::{human, ports};

/// The name of the Ray dashboard's page.
const DASHBOARD: &str = "dashboard";
/// The name of the Ray client's port, which is not a page.
const CLIENT: &str = "client";

/// The arguments of `dashboard`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print the addresses without opening a browser
    #[arg(long)]
    no_open: bool,
    /// The local port of the Ray dashboard; default: the cluster's usual one, else a free one
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Use addresses at 127.0.0.1, for browsers that do not resolve names below localhost; every local server that the
    /// browser visits then gets the key
    #[arg(long)]
    plain: bool,
}

pub(crate) async fn run(app: &App, args: Args) -> anyhow::Result<u8> {
    let target = Target::choose(app)?;
    let mut ends = Ends::listen()?;
    let (questions, mut asked) = mpsc::channel(1);
    // Ctrl-C while opening also closes everything opened so far.
    let opened = tokio::select! {
        opened = open(app, &args, &target, questions) => opened?,
        () = ends.wait() => return Ok(exit_code::DONE),
    };
    show(app, &opened);
    if args.plain {
        app.ui.status(
            "with --plain the browser sends the key to every server on this machine that it visits, whoever runs it",
        );
    }
    let browser = browse(app, &opened, args.no_open);
    app.ui.status("Ctrl-C closes them");
    tokio::select! {
        () = ends.wait() => {}
        () = explain(app, &target, &mut asked) => {}
    }
    drop(browser);
    let count = human::count(opened.pages.len(), "page");
    opened.close().await;
    app.ui.status(format_args!("closed: {count}, no listener is left"));
    Ok(exit_code::DONE)
}

/// An open page.
pub(super) struct Shown {
    name: String,
    url: String,
    /// The user, and the file with the password; `None` if the portal logs in on its own.
    login: Option<Login>,
}

/// The login of a page.
pub(super) struct Login {
    user: Option<String>,
    user_file: Option<PathBuf>,
    password_file: PathBuf,
}

/// All open pages and tunnels.
pub(super) struct Opened {
    pages: Vec<Shown>,
    client: Option<String>,
    portals: Vec<Portal>,
    tunnels: Vec<Tunnel>,
    bridges: Vec<Bridge>,
    to_serve: Option<Way>,
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
        drop(self.bridges);
        if let Some(way) = self.to_serve {
            way.close().await;
        }
        if let Some(head) = self.head {
            head.ssh.clone().close().await;
        }
    }
}

async fn open(app: &App, args: &Args, target: &Target, questions: mpsc::Sender<Question>) -> Result<Opened> {
    let run = if args.plain { PortalRun::plain()? } else { PortalRun::named()? };
    let run = run.explained(questions);
    let mut opened = match (target.pods(app).await?, target.is_remote()) {
        (Some(pods), _) => in_pods(app, &run, args.port, target, pods).await?,
        (None, true) => on_hosts::open(app, &run, args.port, target).await?,
        (None, false) => on_hosts::open_pages(app, &run, args.port, target, None).await?,
    };
    of_serve::open(app, &run, target, &mut opened).await?;
    Ok(opened)
}

/// Answers questions why a page does not answer, for as long as pages are open.
async fn explain(app: &App, target: &Target, questions: &mut mpsc::Receiver<Question>) {
    let (_handle, cancel) = Cancel::new();
    let settings = app.settings_to_inspect(app.plain_events(), cancel);
    while let Some(question) = questions.recv().await {
        let why = match &settings {
            Ok(settings) => what_happened(settings, &target.name).await,
            Err(_) => Down::default(),
        };
        // Whoever asked may be gone.
        let _ = question.send(why);
    }
    // The pages stay open without an explanation.
    std::future::pending::<()>().await;
}

/// What happened to a cluster whose page does not answer.
async fn what_happened(settings: &Settings, name: &ClusterName) -> Down {
    let Ok(Some(known)) = cluster::inspect(settings, name).await else { return Down::default() };
    let mut happened = known.report.happened(jiff::Timestamp::now());
    happened.extend(known.report.silent_hosts.iter().map(|host| format!("{host} does not answer")));
    Down { happened, comes_back: known.report.comes_back() }
}

/// The page of a cluster on a platform, and a bridge for the Ray client.
async fn in_pods(app: &App, run: &PortalRun, port: Option<u16>, target: &Target, pods: Arc<Pods>) -> Result<Opened> {
    // Fails with a clear error if nothing runs.
    target.access()?;
    let places = target.known.state.pages().cloned().unwrap_or_default();
    let place = |name: &str| places.get(name).copied();
    let dashboard = Bridge::open(Arc::clone(&pods), RemotePort::head(DASHBOARD_PORT), 0).await?;
    let upstream = Upstream::Here(dashboard.local().to_string());
    let address = format!("127.0.0.1:{}", place(DASHBOARD).unwrap_or(DASHBOARD_PORT));
    let portal = Portal::open(run, ray_page(target, address, upstream)?, place(DASHBOARD), port).await?;
    if let Some(port) = portal.displaced() {
        report_moved(app, DASHBOARD, port);
    }
    let wanted = place(CLIENT).filter(|port| ports::is_free(*port)).unwrap_or_default();
    let client = Bridge::open(pods, RemotePort::head(CLIENT_PORT), wanted).await?;
    Ok(Opened {
        pages: vec![Shown { name: DASHBOARD.to_owned(), url: portal.url(), login: None }],
        client: Some(format!("ray://{}", client.local())),
        portals: vec![portal],
        tunnels: Vec::new(),
        bridges: vec![dashboard, client],
        to_serve: None,
        head: None,
    })
}

/// The Ray dashboard; the portal adds the token.
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

fn report_moved(app: &App, name: &str, port: u16) {
    app.ui.status(format_args!(
        "port {port} of the page {name} is in use by {}; another port is used this time",
        holder(port)
    ));
}

/// Describes the process that holds a port.
fn holder(port: u16) -> String {
    ports::holder(port)
        .map_or_else(|| "a program of another user".to_owned(), |(pid, command)| format!("process {pid} ({command})"))
}

/// Prints the addresses and the files with the passwords; never a password.
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
            None => (String::new(), "(this address logs you in)".to_owned()),
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
    let (false, Some(program), Some(first)) = (no_open, portal::browser(app), opened.pages.first()) else {
        return None;
    };
    let opened = portal::open_browser(program, &first.url, &app.paths.runtime);
    if let Err(error) = &opened {
        app.ui.status(format_args!("no browser was opened: {error}"));
    }
    opened.ok()
}
