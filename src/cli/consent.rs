//! Consent to what a spec and its folder ask for beyond an ordinary cluster. The list is made in `src/core/spec/asks/`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::app::App;
use super::command_error::usage;
use super::own_files::{self, real};
use super::spec_args::SpecArgs;
use crate::error::{Error, Result};
use crate::providers;
use crate::spec::{self, Ask, Class, Home, Loaded};
use crate::state::{accept, accepted};

/// The most items of a list that is asked about, and characters of an item: nobody reads more between a question and an
/// answer. `plan` shows all of any list.
const MOST_ITEMS: usize = 40;
const MOST_LETTERS: usize = 1000;

/// What a spec asks for, and what of it was not accepted yet.
pub(crate) struct Consent {
    /// The spec's file, by its real path.
    of: PathBuf,
    /// The folder of playbooks and templates in the working folder, by its real path.
    own: PathBuf,
    asks: Vec<Ask>,
    pending: Vec<Ask>,
    digest: String,
    /// `--accept` named another list.
    is_other: bool,
}

impl Consent {
    /// Makes the list of a loaded spec. Runs nothing, sends nothing, changes nothing.
    pub(crate) fn of(app: &App, args: &SpecArgs, loaded: &Loaded) -> Result<Self> {
        let home = app.user_environment().home;
        let around = Home { home: &home, folder: args.folder(), allowed: &args.allow_path };
        let mut asks = spec::asks(loaded, around, &providers::find)?;
        asks.extend(own_files::asked(&app.here)?);
        let (of, own) = (real(&args.spec)?, own_files::subject(&app.here)?);
        let mut known = accepted(&app.paths, &of)?;
        known.extend(accepted(&app.paths, &own)?);
        let digest = spec::digest_of(&asks);
        let is_given = args.accept.as_deref().is_some_and(|given| given == digest);
        let is_pending = |ask: &&Ask| !is_given && !known.contains(&ask.digest);
        let pending: Vec<Ask> = asks.iter().filter(is_pending).cloned().collect();
        let is_other = args.accept.is_some() && !is_given;
        app.use_own_files(!pending.iter().any(|ask| ask.class == Class::Replaces));
        Ok(Self { of, own, asks, pending, digest, is_other })
    }

    /// Whether planning would already do something that was not accepted.
    pub(crate) fn holds_up_plan(&self) -> bool {
        self.pending.iter().any(|ask| ask.before_plan)
    }

    /// Whether looking would already contact, or run, what was not accepted.
    pub(crate) fn contacts(&self) -> bool {
        self.pending.iter().any(|ask| ask.before_plan && matches!(ask.class, Class::Runs | Class::Server))
    }

    /// Whether the servers of repositories may be asked.
    pub(crate) fn may_look_up(&self) -> bool {
        !self.pending.iter().any(|ask| ask.class == Class::Server)
    }

    /// Shows the list, and how it is accepted; nothing where it is empty.
    pub(crate) fn show(&self, app: &App, loaded: &Loaded, file: &Path) {
        if self.asks.is_empty() {
            return;
        }
        if app.json() {
            app.ui.json(&serde_json::json!({
                "v": 1, "type": "asks", "cluster": loaded.spec.name, "asks": self.asks, "pending": self.pending.len(),
                "accept": self.digest,
            }));
            return;
        }
        app.ui.data("asks for more than an ordinary cluster:");
        self.listed(&self.asks).iter().for_each(|line| app.ui.data(format_args!("  {line}")));
        if self.pending.is_empty() {
            app.ui.data("all of it was accepted");
            return;
        }
        app.ui.data(format_args!("to accept it: gpucl up {} --accept {}", file.display(), self.digest));
    }

    /// The refusal to go on without an answer; `with_accept` is a command with `--accept DIGEST`.
    pub(crate) fn refusal(&self, doing: String, with_accept: &str) -> Error {
        let cause = match self.is_other {
            true => "its list is not the one that `--accept` names",
            false => "it asks for more than an ordinary cluster, and that was not accepted",
        };
        let lines = self.pending.iter().take(MOST_ITEMS).map(|ask| {
            let line = format!("{}: {}", ask.class.heading(), described(ask));
            match line.chars().count() > MOST_LETTERS {
                true => {
                    format!("{} … (`gpucl plan` shows all of it)", line.chars().take(MOST_LETTERS).collect::<String>())
                }
                false => line,
            }
        });
        let left = self.pending.len().saturating_sub(MOST_ITEMS);
        let more = (left > 0).then(|| format!("and {left} more, which `gpucl plan` shows"));
        let error = lines.chain(more).fold(usage(doing, cause), Error::because);
        error.hint(format!("{}   # after reading it", with_accept.replace("DIGEST", &self.digest)))
    }

    /// Asks once for all that is new, and remembers a yes. `with_accept` is the command with `--accept DIGEST`.
    ///
    /// # Errors
    /// If the answer is no, or there is nobody to ask.
    pub(crate) fn ask(&self, app: &App, file: &Path, with_accept: &str) -> Result<()> {
        let doing = || format!("bring up {}", file.display());
        if self.is_other && !self.pending.is_empty() {
            return Err(self.refusal(doing(), with_accept));
        }
        if !self.pending.is_empty() {
            // `--yes` answers what is asked of every spec, and nothing of this list.
            if app.json() || app.yes || !app.ui.asks() {
                return Err(self.refusal(doing(), with_accept).because("nothing was made"));
            }
            if self.is_long() {
                let cause = "the list is too long to be asked about; nothing was made";
                return Err(self.refusal(doing(), with_accept).because(cause));
            }
            let lines = self.listed(&self.pending).join("\n  ");
            let question = format!(
                "{} asks for more than an ordinary cluster:\n  {lines}\naccept all of it? [y/N] ",
                file.display()
            );
            if !matches!(app.ui.ask(&question).trim(), "y" | "Y" | "yes") {
                return Err(usage(doing(), "not confirmed; nothing was made"));
            }
        }
        self.remember(app)
    }

    /// Whether nobody would read all that is new before answering.
    fn is_long(&self) -> bool {
        let lengths = || self.pending.iter().map(|ask| described(ask).chars().count());
        self.pending.len() > MOST_ITEMS
            || lengths().any(|length| length > MOST_LETTERS)
            || lengths().sum::<usize>() > MOST_LETTERS * 4
    }

    fn remember(&self, app: &App) -> Result<()> {
        app.use_own_files(true);
        let (own, all): (Vec<&Ask>, Vec<&Ask>) = self.asks.iter().partition(|ask| ask.class == Class::Replaces);
        for (of, asks) in [(&self.of, all), (&self.own, own)] {
            let digests: BTreeSet<String> = asks.iter().map(|ask| ask.digest.clone()).collect();
            if accepted(&app.paths, of)? != digests {
                accept(&app.paths, of, digests)?;
            }
        }
        Ok(())
    }

    /// The lines of a list, by their headings; what was accepted already says so.
    fn listed(&self, asks: &[Ask]) -> Vec<String> {
        let mut asks: Vec<&Ask> = asks.iter().collect();
        asks.sort_by_key(|ask| ask.class);
        let mut lines = Vec::new();
        let mut heading = None;
        for ask in asks {
            if heading.replace(ask.class) != Some(ask.class) {
                lines.push(format!("{}:", ask.class.heading()));
            }
            let known = if self.pending.contains(ask) { "" } else { " (accepted)" };
            lines.push(format!("  {}{known}", described(ask)));
        }
        lines
    }
}

/// What is asked, and by which key.
fn described(ask: &Ask) -> String {
    format!("{} ({})", ask.what, ask.place)
}
