//! Events as JSON lines on stdout.

use super::Ui;
use crate::event::{Event, Sink};

/// Prints each event as a JSON line.
pub(crate) struct Json(pub(crate) Ui);

impl Sink for Json {
    fn take(&mut self, event: &Event) {
        self.0.json(event);
    }
}
