//! The channel from all senders of events to the dispatcher.

use tokio::sync::mpsc;

use super::EventKind;

/// A sender of events; cheap to clone. Sending never waits and never fails.
#[derive(Debug, Clone)]
pub struct Bus {
    sender: mpsc::UnboundedSender<EventKind>,
}

/// The receiving end, with the events in the order in which they were sent.
pub type Inbox = mpsc::UnboundedReceiver<EventKind>;

impl Bus {
    /// Creates a bus and its inbox.
    pub fn new() -> (Self, Inbox) {
        let (sender, inbox) = mpsc::unbounded_channel();
        (Self { sender }, inbox)
    }

    /// Sends one event; it is dropped if the inbox is closed.
    pub fn send(&self, event: EventKind) {
        let _ = self.sender.send(event);
    }

    /// Sends a note.
    pub fn note(&self, message: impl Into<String>) {
        self.send(EventKind::Note { message: message.into() });
    }

    /// Sends a warning.
    pub fn warn(&self, message: impl Into<String>) {
        self.send(EventKind::Warning { message: message.into() });
    }
}
