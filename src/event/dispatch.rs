//! The dispatcher: numbers the events and passes them to everything that shows or records them.

use super::{Event, EventKind, Inbox};

/// A consumer of events, in order.
pub trait Sink: Send {
    /// Handles one event.
    fn take(&mut self, event: &Event);
    /// Called every 100 ms, so that progress displays can move.
    fn tick(&mut self) {}
}

/// Gives every event its number and time and passes it to all sinks, until no sender is left.
pub async fn dispatch(mut inbox: Inbox, cluster: Option<String>, mut sinks: Vec<Box<dyn Sink>>) {
    let mut seq = 0;
    let mut tick = tokio::time::interval(std::time::Duration::from_millis(100));
    loop {
        tokio::select! {
            kind = inbox.recv() => {
                let Some(kind) = kind else { return };
                let event = number(kind, seq, cluster.clone());
                seq += 1;
                for sink in &mut sinks {
                    sink.take(&event);
                }
            }
            _ = tick.tick() => {
                for sink in &mut sinks {
                    sink.tick();
                }
            }
        }
    }
}

fn number(kind: EventKind, seq: u64, cluster: Option<String>) -> Event {
    Event { v: super::kind::VERSION, seq, at: jiff::Timestamp::now(), cluster, kind }
}
