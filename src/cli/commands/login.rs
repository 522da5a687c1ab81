//! `gpucl login` and `gpucl logout`.

use std::io::{IsTerminal as _, Read as _};
use std::sync::{Mutex, PoisonError};

use secrecy::SecretString;
use serde_json::json;

use crate::cli::app::App;
use crate::cli::command_error::usage;
use crate::cli::exit_code;
use crate::cli::output::{Table, Ui};
use crate::cli::portal::{self, Opener, browser};
use crate::error::{Error, ErrorKind, Result};
use crate::provider::{LoggedIn, Login, LoginAsk, LoginPage, ShowPage, SignedIn};
use crate::providers;
use crate::secret::{Store, Vault};
use crate::util::human;

/// The longest secret, in bytes; longer input is not a secret.
const LONGEST_SECRET: u64 = 16 * 1024;

/// The arguments of `login`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The provider
    #[arg(required_unless_present = "list")]
    provider: Option<String>,
    /// The site; default: OS_REGION_NAME, else all sites, or you are asked
    #[arg(long, value_name = "SITE")]
    site: Option<String>,
    /// The project that the credential must belong to
    #[arg(long, value_name = "NAME")]
    project: Option<String>,
    /// The site's URL, if gpucl does not know the site by name
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// The credential's id, if it has one; default: you are asked
    #[arg(long, value_name = "ID")]
    credential_id: Option<String>,
    /// Read the secret from stdin, and ask nothing; with GPUCL_KEYRING=off it is stored in a file, not in the keyring
    #[arg(long)]
    secret_stdin: bool,
    /// List the stored logins
    #[arg(long, conflicts_with_all = ["site", "project", "url", "credential_id", "secret_stdin"])]
    list: bool,
}

/// The arguments of `logout`.
#[derive(Debug, clap::Args)]
pub(crate) struct LogoutArgs {
    /// The provider
    provider: String,
    /// The site; default: all sites
    #[arg(long, value_name = "SITE")]
    site: Option<String>,
    /// The project; default: all projects
    #[arg(long, value_name = "NAME")]
    project: Option<String>,
    /// Leave the credential that `gpucl login` made at the site, and only forget it here
    #[arg(long)]
    keep_credential: bool,
}

pub(crate) async fn run(app: &App, args: Args) -> anyhow::Result<u8> {
    if args.list {
        return Ok(list(app, args.provider.as_deref())?);
    }
    let name = args.provider.unwrap_or_default();
    let login = login_of(&name)?;
    let context = app.provider_context(app.plain_events());
    let mut ask = LoginAsk { place: args.site, project: args.project, url: args.url };
    let asks = app.ui.asks() && !args.secret_stdin;
    if !args.secret_stdin && args.credential_id.is_none() {
        let opener = Mutex::new(None);
        let show = |page: &LoginPage| *opener.lock().unwrap_or_else(PoisonError::into_inner) = show(app, &name, page);
        // A page is shown to somebody who can open it.
        let show: Option<ShowPage<'_>> = (asks && !app.json()).then_some(&show);
        if let Some(done) = login.sign_in(&context, &ask, show).await? {
            return Ok(signed_in(app, &name, done)?);
        }
    }
    if ask.place.is_none() && ask.url.is_none() && login.place(&context).is_none() && asks {
        let places = login.places();
        let usual = places.first().cloned().unwrap_or_default();
        let answer = app.ui.ask(&format!("which site? {} [{usual}]: ", places.join(", ")));
        let answer = answer.trim();
        ask.place = Some(if answer.is_empty() { usual } else { answer.to_owned() });
    }
    let form = login.form(&context, &ask)?;
    let lacks_id = form.id.is_some() && args.credential_id.is_none();
    if !asks && (lacks_id || !args.secret_stdin) {
        let mut error = usage(format!("log in to {}", form.place), "there is no terminal to ask at");
        error = form.steps.iter().fold(error, |error, step| error.because(step.trim()));
        let id = if form.id.is_some() { format!(" --site {} --credential-id ID", form.place) } else { String::new() };
        return Err(error.hint(format!("gpucl login {name}{id} --secret-stdin < FILE-WITH-THE-SECRET")).into());
    }
    if asks && args.credential_id.is_none() {
        for step in &form.steps {
            app.ui.status(step);
        }
    }
    let id = match (args.credential_id, form.id) {
        (Some(id), _) => id,
        (None, Some(what)) => app.ui.ask(&format!("{what}: ")).trim().to_owned(),
        (None, None) => String::new(),
    };
    let doing = format!("log in to {}", form.place);
    let secret = if args.secret_stdin {
        secret_of_stdin(&doing)?
    } else if asks {
        asked_secret(&app.ui, &doing, &format!("{} (not shown): ", form.secret))?
    } else {
        return Err(usage(doing, "there is no terminal to ask at").hint("--secret-stdin reads it from stdin").into());
    };
    if let Some(what) = form.id.filter(|_| id.is_empty()) {
        return Err(usage(doing, format!("no {what} was given")).into());
    }
    let done = login.check(&context, &ask, &id, secret).await?;
    report(app, &name, &done)?;
    Ok(exit_code::DONE)
}

/// Stores a credential, and says what it gives access to.
fn report(app: &App, provider: &str, done: &LoggedIn) -> Result<()> {
    let vault = vault(app);
    let store = vault.put(&done.account, &done.kept)?;
    let place = match store {
        Store::Keyring => "your desktop's keyring".to_owned(),
        Store::File => format!("{}, readable only by you (no keyring is available here)", vault.file().display()),
    };
    if app.json() {
        app.ui.json(&json!({
            "v": 1, "type": "login", "provider": provider, "place": done.place, "project": done.project,
            "seen": done.seen, "warnings": done.warnings,
            "store": match store { Store::Keyring => "keyring", Store::File => "file" },
        }));
        return Ok(());
    }
    app.ui.data(format!("logged in to {}", done.place));
    for line in &done.seen {
        app.ui.data(format!("  {line}"));
    }
    for warning in &done.warnings {
        app.ui.data(format!("  warning: {warning}"));
    }
    app.ui.data(format!("  stored in {place}"));
    Ok(())
}

/// Says at which places the login was taken, and at which it was refused. It failed only if all of them refused.
fn signed_in(app: &App, provider: &str, done: SignedIn) -> Result<u8> {
    for account in &done.accounts {
        report(app, provider, account)?;
    }
    let mut refused = done.refused;
    if done.accounts.is_empty()
        && let Some((_, error)) = refused.pop_if(|_| true)
    {
        return Err(error);
    }
    for (place, error) in &refused {
        if app.json() {
            app.ui.json(&json!({
                "v": 1, "type": "login_refused", "provider": provider, "place": place, "error": error.to_string(),
                "hints": error.hints(),
            }));
        } else {
            app.ui.data(format!("not logged in to {place}: {error}"));
        }
    }
    Ok(exit_code::DONE)
}

/// Shows the page on which the login is confirmed, and opens it if there is a browser.
fn show(app: &App, provider: &str, page: &LoginPage) -> Option<Opener> {
    let whole = page.whole_url.as_deref().unwrap_or(&page.url);
    let minutes = usize::try_from(page.lasts.as_secs().div_ceil(60)).unwrap_or_default();
    app.ui.status(format!("to log in to {provider}, open {whole}"));
    app.ui.status(format!("  and confirm the code {} within {}", page.code, human::count(minutes, "minute")));
    app.ui.status("  (any browser will do, on this machine or another)");
    let opened = browser(app).map(|program| portal::open_browser(program, whole, &app.paths.runtime));
    opened.and_then(Result::ok)
}

fn list(app: &App, only: Option<&str>) -> Result<u8> {
    let vault = vault(app);
    let mut table = Table::new(&["provider", "site", "project"]);
    let mut any = false;
    for factory in providers::all() {
        let (manifest, Some(login)) = (factory.manifest()?, factory.login()) else { continue };
        if only.is_some_and(|only| only != manifest.name) {
            continue;
        }
        for account in vault.list(login.accounts())? {
            let Some((place, project)) = login.parts(&account) else { continue };
            any = true;
            if app.json() {
                app.ui.json(&json!({
                    "v": 1, "type": "login", "provider": manifest.name, "place": place, "project": project,
                }));
            }
            table.row([&manifest.name, place.as_str(), &project]);
        }
    }
    match (app.json(), any) {
        (true, _) => {}
        (false, true) => app.ui.data(table),
        (false, false) => app.ui.data("no login is stored; `gpucl login chameleon` or `gpucl login lambda` stores one"),
    }
    Ok(exit_code::DONE)
}

/// Deletes stored logins.
pub(crate) async fn logout(app: &App, args: &LogoutArgs) -> anyhow::Result<u8> {
    let login = login_of(&args.provider)?;
    let vault = vault(app);
    let context = app.provider_context(app.plain_events());
    let mut gone = 0;
    for account in vault.list(login.accounts())? {
        let Some((place, project)) = login.parts(&account) else { continue };
        let is_place = args.site.as_deref().is_none_or(|word| login.means(word, &place));
        let is_project = args.project.as_deref().is_none_or(|word| word.eq_ignore_ascii_case(&project));
        if !(is_place && is_project) {
            continue;
        }
        let revoked = match vault.get(&account)? {
            Some(kept) if !args.keep_credential => login.revoke(&context, &account, &kept).await.map_err(|error| {
                error
                    .because("the login is still stored")
                    .hint(format!("gpucl logout {} --keep-credential   # only forgets it here", args.provider))
            })?,
            _ => false,
        };
        if vault.remove(&account)? {
            gone += 1;
            if app.json() {
                app.ui.json(&json!({
                    "v": 1, "type": "logout", "provider": args.provider, "place": place, "project": project,
                    "revoked": revoked,
                }));
            } else {
                let of = if project.is_empty() { String::new() } else { format!(" in {project}") };
                let rest =
                    if revoked { ", and its credential there" } else { "; the credential itself is still valid there" };
                app.ui.data(format!("deleted the login at {place}{of}{rest}"));
            }
        }
    }
    if gone > 0 {
        return Ok(exit_code::DONE);
    }
    Err(Error::new(ErrorKind::NotFound, format!("log out of {}", args.provider))
        .because("no such login is stored")
        .hint("gpucl login --list")
        .into())
}

pub(super) fn vault(app: &App) -> Vault {
    Vault::open(&app.paths.config, app.user_environment().keyring_bus())
}

fn login_of(name: &str) -> Result<&'static dyn Login> {
    providers::find(name)?.login().ok_or_else(|| {
        usage(format!("log in to {name}"), "it has no accounts: no login is needed").hint("gpucl provider list")
    })
}

fn secret_of_stdin(doing: &str) -> Result<SecretString> {
    let mut text = String::new();
    std::io::stdin()
        .lock()
        .take(LONGEST_SECRET)
        .read_to_string(&mut text)
        .map_err(|error| usage(doing, format!("stdin cannot be read: {error}")))?;
    secret(doing, text.trim())
}

fn secret(doing: &str, text: &str) -> Result<SecretString> {
    if text.is_empty() {
        return Err(usage(doing, "the secret is empty"));
    }
    Ok(SecretString::from(text.to_owned()))
}

/// Asks at the terminal, without echo.
pub(super) fn asked_secret(ui: &Ui, doing: &str, question: &str) -> Result<SecretString> {
    ui.question(question);
    let silent = Silent::begin();
    let mut text = Vec::new();
    let mut input = std::io::stdin().lock();
    let cancelled = loop {
        let mut letter = [0_u8];
        match input.read(&mut letter) {
            Ok(1) => {}
            _ => break false,
        }
        match letter[0] {
            b'\r' | b'\n' | 4 => break false,
            // Ctrl-C arrives as a character here, so that the terminal is restored before the exit.
            3 => break true,
            8 | 127 => {
                text.pop();
            }
            letter => text.push(letter),
        }
    };
    drop(silent);
    ui.question("\n");
    if cancelled {
        return Err(Error::new(ErrorKind::Cancelled, doing).because("it was stopped; nothing was stored"));
    }
    secret(doing, String::from_utf8_lossy(&text).trim())
}

/// Turns off the terminal's echo until it is dropped.
struct Silent {
    before: Option<rustix::termios::Termios>,
}

impl Silent {
    fn begin() -> Self {
        use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
        let input = std::io::stdin();
        let before = if input.is_terminal() { tcgetattr(&input).ok() } else { None };
        if let Some(before) = &before {
            let mut now = before.clone();
            now.local_modes -= LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
            let _ = tcsetattr(&input, OptionalActions::Flush, &now);
        }
        Self { before }
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        use rustix::termios::{OptionalActions, tcsetattr};
        if let Some(before) = &self.before {
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Flush, before);
        }
    }
}
