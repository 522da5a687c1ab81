//! Moving progress on a terminal: a line for each running operation.

use std::collections::BTreeMap;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::words;
use crate::event::{Event, EventKind, Sink};
use crate::util::text::{printable, printable_line};

/// A running operation and its target.
struct Running {
    target: String,
    bar: ProgressBar,
}

impl Running {
    /// Whether it runs on this host: its target is the host or the host's project.
    fn is_on(&self, host: &str) -> bool {
        let number = |text: &str, kind: &str| text.strip_prefix(kind).map(str::to_owned);
        let project = number(&self.target, "project-");
        self.target == host || (project.is_some() && project == number(host, "host-"))
    }
}

/// Draws running operations, and prints finished ones above them.
pub(crate) struct Tty {
    bars: MultiProgress,
    running: BTreeMap<usize, Running>,
    waiting: Option<ProgressBar>,
    style: ProgressStyle,
}

impl Tty {
    pub(crate) fn new(colour: bool) -> Self {
        Self::on(MultiProgress::new(), colour)
    }

    /// A display that draws to `bars`.
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
                self.running.insert(*operation, Running { target: target.clone(), bar });
            }
            EventKind::HostLine { host, line } => {
                if let Some(running) = self.running.values().find(|running| running.is_on(host)) {
                    running.bar.set_message(shown(line));
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
                if let Some(running) = self.running.remove(operation) {
                    running.bar.finish_and_clear();
                }
            }
            _ => {}
        }
        if let Some(line) = words::line(event, false) {
            let _ = self.bars.println(printable(&line));
        }
    }
}

/// A text for a bar: one line, with control characters escaped.
fn shown(text: &str) -> String {
    printable_line(text).into_owned()
}

impl Drop for Tty {
    fn drop(&mut self) {
        for bar in self.running.values().map(|running| &running.bar).chain(&self.waiting) {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: EventKind) -> Event {
        Event { v: 1, seq: 0, at: jiff::Timestamp::UNIX_EPOCH, cluster: None, kind }
    }

    #[test]
    fn a_hosts_line_appears_beside_the_operation_on_that_host() {
        let mut tty = Tty::new(false);
        for (operation, target) in [(1, "host-0"), (2, "project-1"), (3, "host-10")] {
            let (target, action, cause) = (target.to_owned(), "prepare".to_owned(), String::new());
            tty.take(&event(EventKind::OperationStarted { operation, action, target, cause }));
        }
        for host in ["host-0", "host-1", "host-10", "host-2"] {
            tty.take(&event(EventKind::HostLine { host: host.to_owned(), line: format!("from {host}") }));
        }
        let shown: Vec<String> = tty.running.values().map(|running| running.bar.message()).collect();
        assert_eq!(shown, ["from host-0", "from host-1", "from host-10"]);
    }
}
