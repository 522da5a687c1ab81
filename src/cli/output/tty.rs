//! Moving progress on a terminal: a line for each operation that runs.

use std::collections::BTreeMap;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::words;
use crate::event::{Event, EventKind, Sink};
use crate::util::text::{printable, printable_line};

/// Draws what runs, and prints what is done above it.
pub(crate) struct Tty {
    bars: MultiProgress,
    running: BTreeMap<usize, ProgressBar>,
    waiting: Option<ProgressBar>,
    style: ProgressStyle,
}

impl Tty {
    pub(crate) fn new(colour: bool) -> Self {
        Self::on(MultiProgress::new(), colour)
    }

    /// One that draws here.
    pub(super) fn on(bars: MultiProgress, colour: bool) -> Self {
        let template = if colour {
            "  {spinner:.cyan} {prefix} {elapsed} {wide_msg:.dim}"
        } else {
            "  {spinner} {prefix} {elapsed} {wide_msg}"
        };
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner());
        Self { bars, running: BTreeMap::new(), waiting: None, style }
    }
}

impl Sink for Tty {
    fn take(&mut self, event: &Event) {
        match &event.kind {
            EventKind::OperationStarted { operation, action, target, .. } => {
                let bar = self.bars.add(ProgressBar::new_spinner());
                bar.set_style(self.style.clone());
                bar.set_prefix(shown(&format!("{target}: {action}")));
                bar.enable_steady_tick(Duration::from_millis(100));
                self.running.insert(*operation, bar);
            }
            EventKind::OperationProgress { operation, message } => {
                if let Some(bar) = self.running.get(operation) {
                    bar.set_message(shown(message));
                }
            }
            EventKind::HostLine { line, .. } => {
                if let Some(bar) = self.running.values().next_back() {
                    bar.set_message(shown(line));
                }
            }
            EventKind::Waiting { what, .. } => {
                let bar = self.waiting.get_or_insert_with(|| {
                    let bar = self.bars.add(ProgressBar::new_spinner());
                    bar.set_style(self.style.clone());
                    bar.enable_steady_tick(Duration::from_millis(100));
                    bar
                });
                bar.set_prefix(shown(&format!("waiting for {what}")));
            }
            EventKind::Check { .. } | EventKind::RunFinished { .. } => {
                if let Some(bar) = self.waiting.take() {
                    bar.finish_and_clear();
                }
            }
            EventKind::OperationFinished { operation, .. } => {
                if let Some(bar) = self.running.remove(operation) {
                    bar.finish_and_clear();
                }
            }
            _ => {}
        }
        if let Some(line) = words::line(event, false) {
            let _ = self.bars.println(printable(&line));
        }
    }
}

/// What goes into a bar: one line, of which the terminal obeys nothing.
fn shown(text: &str) -> String {
    printable_line(text).into_owned()
}

impl Drop for Tty {
    fn drop(&mut self) {
        for bar in self.running.values().chain(&self.waiting) {
            bar.finish_and_clear();
        }
    }
}
