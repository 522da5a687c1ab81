//! How far a copy is: a bar, on a terminal only.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::Ui;

/// A bar for bytes.
pub(crate) struct BytesBar(ProgressBar);

impl BytesBar {
    /// A bar that is drawn where progress may be.
    pub(crate) fn new(ui: &Ui) -> Self {
        let target = if ui.progress() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        let template = "  {bar:30} {bytes} of {total_bytes} {bytes_per_sec} {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// Shows how much is done.
    pub(crate) fn set(&self, done: u64, all: u64) {
        self.0.set_length(all);
        self.0.set_position(done);
    }
}

impl Drop for BytesBar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
