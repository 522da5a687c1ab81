//! How much was copied: moving on a terminal, and counted for the end.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use serde_json::json;

use crate::cli::app::App;
use crate::cli::output::Bytes;
use crate::util::human;

/// What was copied so far.
pub(super) struct Progress {
    bytes: AtomicU64,
    files: AtomicUsize,
    left_out: AtomicUsize,
    shown: Bytes,
}

impl Progress {
    /// Shows `total` bytes to come.
    pub(super) fn new(app: &App, total: u64) -> Self {
        let (bytes, files, left_out) = (AtomicU64::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        Self { bytes, files, left_out, shown: app.ui.bytes(total) }
    }

    /// This many bytes came or went.
    pub(super) fn moved(&self, bytes: u64) {
        self.shown.moved(bytes);
    }

    /// A file is whole.
    pub(super) fn done(&self, bytes: u64) {
        self.files.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Something is not copied, with the reason.
    pub(super) fn leave_out(&self, app: &App, what: &str, why: &str) {
        self.left_out.fetch_add(1, Ordering::Relaxed);
        app.ui.status(format_args!("warning: left out {what}: {why}"));
    }

    /// Reports the end; `unchanged` and `deleted` are counts of `sync`.
    pub(super) fn end(self, app: &App, unchanged: usize, deleted: usize) {
        self.shown.end();
        let (files, bytes) = (self.files.into_inner(), self.bytes.into_inner());
        let left_out = self.left_out.into_inner();
        if app.json() {
            app.ui.json(&json!({
                "v": 1, "type": "stored", "files": files, "bytes": bytes,
                "unchanged": unchanged, "deleted": deleted, "left_out": left_out,
            }));
            return;
        }
        let mut text = format!("copied: {}, {}", human::count(files, "file"), human::bytes(bytes));
        if unchanged > 0 {
            text.push_str(&format!("; {unchanged} unchanged"));
        }
        if deleted > 0 {
            text.push_str(&format!("; {deleted} deleted"));
        }
        app.ui.status(text);
    }
}
