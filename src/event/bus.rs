//! The way from whoever has something to say to the one dispatcher that orders it.

use tokio::sync::mpsc;

use super::EventKind;

/// A handle to send events with; cheap to clone. Sending never waits and never fails.
#[derive(Debug, Clone)]
pub struct Bus {
    sender: mpsc::UnboundedSender<EventKind>,
}

/// Where the events arrive, in the order in which they were sent.
pub type Inbox = mpsc::UnboundedReceiver<EventKind>;

impl Bus {
    /// Makes a bus and its inbox.
    pub fn new() -> (Self, Inbox) {
        let (sender, inbox) = mpsc::unbounded_channel();
        (Self { sender }, inbox)
    }

    /// Sends one event; with nobody listening any more it is dropped.
    pub fn send(&self, event: EventKind) {
        let _ = self.sender.send(event);
    }

    /// Sends a sentence to know.
    pub fn note(&self, message: impl Into<String>) {
        self.send(EventKind::Note { message: message.into() });
    }

    /// Sends a sentence that may be unwelcome.
    pub fn warn(&self, message: impl Into<String>) {
        self.send(EventKind::Warning { message: message.into() });
    }
}
