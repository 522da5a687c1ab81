//! A bar of bytes that are copied, on a terminal.

use indicatif::{ProgressBar, ProgressStyle};

use super::Ui;

/// Bytes that are copied. Shown only where moving progress may be drawn.
pub(crate) struct Bytes(Option<ProgressBar>);

impl Ui {
    /// Shows `total` bytes to come.
    pub(crate) fn bytes(&self, total: u64) -> Bytes {
        let template = "  {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        Bytes(self.progress().then(|| ProgressBar::new(total).with_style(style)))
    }
}

impl Bytes {
    /// This many more came or went.
    pub(crate) fn moved(&self, bytes: u64) {
        if let Self(Some(bar)) = self {
            bar.inc(bytes);
        }
    }

    /// Takes it off the screen.
    pub(crate) fn end(self) {
        if let Self(Some(bar)) = self {
            bar.finish_and_clear();
        }
    }
}
