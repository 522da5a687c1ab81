//! How an export or an import goes on, and what it has copied.

use std::path::Path;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::cli::app::App;
use crate::cli::output::Bytes;
use crate::mlflow::{Counts, Watch};
use crate::util::human;

/// How often it is said what is copied.
const EVERY: Duration = Duration::from_secs(5);

/// What was copied so far.
pub(super) struct Progress<'a> {
    app: &'a App,
    shown: OnceLock<Bytes>,
    said: Mutex<Instant>,
}

/// Which way.
#[derive(Clone, Copy)]
pub(super) enum Direction {
    /// From MLflow into a folder.
    Export,
    /// From a folder into MLflow.
    Import,
}

impl<'a> Progress<'a> {
    pub(super) fn new(app: &'a App) -> Self {
        Self { app, shown: OnceLock::new(), said: Mutex::new(Instant::now()) }
    }

    /// Reports the end.
    pub(super) fn end(self, direction: Direction, folder: &Path, counts: &Counts) {
        if let Some(shown) = self.shown.into_inner() {
            shown.end();
        }
        if self.app.json() {
            let kind = match direction {
                Direction::Export => "mlflow_exported",
                Direction::Import => "mlflow_imported",
            };
            let mut line = Map::from_iter([
                ("v".to_owned(), json!(1)),
                ("type".to_owned(), json!(kind)),
                ("folder".to_owned(), json!(folder.display().to_string())),
            ]);
            if let Value::Object(counts) = json!(counts) {
                line.extend(counts);
            }
            if matches!(direction, Direction::Export) {
                line.remove("there_already");
            }
            self.app.ui.json(&Value::Object(line));
            return;
        }
        let Counts { experiments, runs, logged_models, registered_models, versions, files, bytes, there_already } =
            *counts;
        let mut words = vec![human::count(experiments, "experiment"), human::count(runs, "run")];
        if logged_models > 0 {
            words.push(human::count(logged_models, "logged model"));
        }
        words.push(human::count(registered_models, "registered model"));
        words.push(human::count(versions, "version"));
        let files = format!("{}, {}", human::count(files, "artifact"), human::bytes(bytes));
        let there = match there_already {
            0 => String::new(),
            there => format!("; there already: {there}"),
        };
        let done = match direction {
            Direction::Export => format!("exported to {}", folder.display()),
            Direction::Import => "imported".to_owned(),
        };
        self.app.ui.data(format_args!("{done}: {}; {files}{there}", words.join(", ")));
    }
}

impl Watch for Progress<'_> {
    fn doing(&self, what: &str) {
        let mut said = self.said.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if said.elapsed() > EVERY {
            *said = Instant::now();
            self.app.ui.status(what);
        }
    }

    fn expects(&self, bytes: u64) {
        self.shown.get_or_init(|| self.app.ui.bytes(bytes));
    }

    fn moved(&self, bytes: u64) {
        if let Some(shown) = self.shown.get() {
            shown.moved(bytes);
        }
    }

    fn warn(&self, what: &str) {
        self.app.ui.status(format_args!("warning: {what}"));
    }
}
