//! The dispatcher: numbers the events and passes them to everything that shows or records them.

use super::{Event, EventKind, Inbox};

/// A consumer of events, in order.
pub trait Sink: Send {
    /// Handles one event.
    fn take(&mut self, event: &Event);
}

/// Gives every event its number and time and passes it to all sinks, until no sender is left.
pub async fn dispatch(mut inbox: Inbox, cluster: Option<String>, mut sinks: Vec<Box<dyn Sink>>) {
    let mut seq = 0;
    while let Some(kind) = inbox.recv().await {
        let event = number(kind, seq, cluster.clone());
        seq += 1;
        for sink in &mut sinks {
            sink.take(&event);
        }
    }
}

fn number(kind: EventKind, seq: u64, cluster: Option<String>) -> Event {
    Event { v: super::kind::VERSION, seq, at: jiff::Timestamp::now(), cluster, kind }
}
