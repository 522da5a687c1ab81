//! Fuzzes everything that draws on a terminal with foreign text: only gpucl's own colours may come out.

use std::sync::{Arc, Mutex};

use indicatif::{MultiProgress, ProgressDrawTarget, TermLike};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::gantt::{Chart, Style};
use super::{Table, Tty, words};
use crate::error::{Error, ErrorKind};
use crate::event::{CheckOutcome, Event, EventKind, Finish, Sink as _, StepOutcome};
use crate::provider::{Booking, CalendarRow, GpuOffer};
use crate::util::text::is_control;
use gpucl_fuzz::{Target, demand};

/// Drawn text without gpucl's own colours.
fn without_ours(drawn: &str) -> String {
    ["\u{1b}[31m", "\u{1b}[32m", "\u{1b}[2m", "\u{1b}[36m", "\u{1b}[0m"]
        .iter()
        .fold(drawn.to_owned(), |text, ours| text.replace(ours, ""))
}

fn no_control(what: &str, drawn: &str) -> Result<(), String> {
    demand(!drawn.contains(is_control), || format!("{what}: {drawn:?}"))
}

/// A terminal that records what is written to it.
#[derive(Debug, Clone, Default)]
struct Recorder(Arc<Mutex<String>>);

impl Recorder {
    fn write(&self, text: &str) {
        self.0.lock().unwrap().push_str(text);
    }
}

impl TermLike for Recorder {
    fn width(&self) -> u16 {
        200
    }
    fn move_cursor_up(&self, _: usize) -> std::io::Result<()> {
        Ok(())
    }
    fn move_cursor_down(&self, _: usize) -> std::io::Result<()> {
        Ok(())
    }
    fn move_cursor_right(&self, _: usize) -> std::io::Result<()> {
        Ok(())
    }
    fn move_cursor_left(&self, _: usize) -> std::io::Result<()> {
        Ok(())
    }
    fn write_line(&self, text: &str) -> std::io::Result<()> {
        self.write(text);
        self.write("\n");
        Ok(())
    }
    fn write_str(&self, text: &str) -> std::io::Result<()> {
        self.write(text);
        Ok(())
    }
    fn clear_line(&self) -> std::io::Result<()> {
        Ok(())
    }
    fn flush(&self) -> std::io::Result<()> {
        Ok(())
    }
}

fn events(text: &str) -> Vec<EventKind> {
    let text = || text.to_owned();
    vec![
        EventKind::RunStarted { verb: text(), run: text() },
        EventKind::PlanReady { text: text(), operations: 2 },
        EventKind::OperationStarted { operation: 1, action: text(), target: text(), cause: text() },
        EventKind::Waiting { what: text(), limit_milliseconds: 9 },
        EventKind::Step {
            host: text(),
            stage: text(),
            step: text(),
            outcome: StepOutcome::Failed,
            milliseconds: u64::MAX,
        },
        EventKind::HostLine { host: text(), line: text() },
        EventKind::Check { check: text(), target: text(), outcome: CheckOutcome::Noted, saw: text() },
        EventKind::Note { message: text() },
        EventKind::Warning { message: text() },
        EventKind::OperationFinished {
            operation: 1,
            action: text(),
            target: text(),
            finish: Finish::Failed,
            milliseconds: 1,
        },
        EventKind::RunFinished {
            verb: text(),
            finish: Finish::Done,
            summary: text(),
            endpoints: Vec::new(),
            milliseconds: 1,
        },
    ]
}

fn event(kind: EventKind) -> Event {
    Event { v: 1, seq: 0, at: Timestamp::UNIX_EPOCH, cluster: None, kind }
}

fn row(text: &str) -> CalendarRow {
    let hour = |hours: i64| Timestamp::from_second(1_795_000_000 + hours * 3600).unwrap();
    CalendarRow {
        name: text.chars().take(40).collect(),
        id: text.to_owned(),
        place: text.to_owned(),
        kind: text.to_owned(),
        cpus: 1,
        memory: 1,
        gpus: vec![GpuOffer { model: text.to_owned(), count: Some(1) }],
        gpus_from: None,
        price_per_hour: None,
        closed: None,
        bookings: vec![Booking {
            start: hour(1),
            end: hour(40),
            lease: None,
            holder: Some(text.to_owned()),
            ours: false,
        }],
    }
}

const SEEDS: [&str; 3] = ["1x A10 (24 GB PCIe)", "worker-0 \u{1b}[2J did it", "a\u{202e}b\u{9b}2J\u{1b}]0;x\u{7}"];

#[test]
fn fuzz_what_is_drawn() {
    Target::of_text("drawn", &SEEDS).with_inputs(100, 20).run(|input| {
        let text = String::from_utf8_lossy(input);
        let mut table = Table::new(&["name", "what"]);
        table.row([&*text, "x"]);
        no_control("table", &table.to_string())?;
        for style in
            [Style { width: 100, blocks: true, colour: true }, Style { width: 60, blocks: false, colour: false }]
        {
            let row = row(&text);
            let now = Timestamp::from_second(1_795_000_000).unwrap();
            let chart = Chart { rows: vec![&row], now, days: 3, zone: TimeZone::UTC, style };
            for line in chart.lines() {
                let line = line.to_string();
                no_control("chart", &without_ours(&line))?;
                demand(!line.contains('\n'), || "a line of the chart is two".to_owned())?;
            }
        }
        let error = Error::new(ErrorKind::Host, text.clone())
            .because(text.clone())
            .hint(text.clone())
            .left(crate::error::LeftBehind::Remaining(vec![text.to_string()]));
        no_control("error", &crate::util::text::printable(&super::error::text(&error)))?;
        let recorder = Recorder::default();
        let target = ProgressDrawTarget::term_like(Box::new(recorder.clone()));
        let mut tty = Tty::on(MultiProgress::with_draw_target(target), true);
        for kind in events(&text) {
            let event = event(kind);
            let _ = words::line(&event, true);
            tty.take(&event);
        }
        drop(tty);
        let drawn = recorder.0.lock().unwrap().clone();
        no_control("moving display", &without_ours(&drawn).replace('\r', ""))
    });
}
