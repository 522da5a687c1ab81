//! Events as lines on stderr, for pipes and for terminals without cursor movement.

use super::{Ui, words};
use crate::event::{Event, Sink};

/// Prints each event as a line.
pub(crate) struct Plain(pub(crate) Ui);

impl Sink for Plain {
    fn take(&mut self, event: &Event) {
        if let Some(line) = words::line(event, true) {
            self.0.status(line);
        }
    }
}
