//! Cancellation by Ctrl-C: once = begin nothing more and wait for nothing, twice = drop calls in flight, too.

use tokio::sync::watch;

use crate::error::{Error, ErrorKind, Result};

/// How urgently a run should end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Urgency {
    /// Not cancelled.
    #[default]
    None,
    /// Begin nothing more and end every wait; finish calls in flight.
    Finish,
    /// Stop now.
    Now,
}

/// The receiving side, checked by a run.
#[derive(Debug, Clone)]
pub struct Cancel {
    receiver: watch::Receiver<Urgency>,
}

/// The sending side, held by the handler of Ctrl-C.
#[derive(Debug)]
pub struct CancelHandle {
    sender: watch::Sender<Urgency>,
}

impl Cancel {
    /// Creates a connected pair.
    pub fn new() -> (CancelHandle, Self) {
        let (sender, receiver) = watch::channel(Urgency::None);
        (CancelHandle { sender }, Self { receiver })
    }

    /// The current urgency.
    pub fn urgency(&self) -> Urgency {
        *self.receiver.borrow()
    }

    /// Waits until the urgency is at least this; forever if the handle is dropped first.
    pub async fn at_least(&self, urgency: Urgency) {
        let mut receiver = self.receiver.clone();
        if receiver.wait_for(|now| *now >= urgency).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits for what is requested and on record. The first Ctrl-C ends it: a wait is no call in flight, and nothing is
    /// lost by asking again later.
    ///
    /// # Errors
    /// Those of the wait; of kind `Cancelled` if it was ended.
    pub async fn unless_pressed<T>(&self, doing: &str, wait: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            biased;
            done = wait => done,
            () = self.at_least(Urgency::Finish) => Err(Error::new(ErrorKind::Cancelled, doing)
                .because("it was stopped with Ctrl-C; what was requested is on record")),
        }
    }
}

impl CancelHandle {
    /// Raises the urgency by one step and returns it.
    pub fn press(&self) -> Urgency {
        let mut now = Urgency::None;
        self.sender.send_modify(|urgency| {
            *urgency = if *urgency == Urgency::None { Urgency::Finish } else { Urgency::Now };
            now = *urgency;
        });
        now
    }
}
