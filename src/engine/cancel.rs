//! Ctrl-C, as the core knows it: once = begin nothing more, twice = stop now.

use tokio::sync::watch;

/// How urgently a run is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Urgency {
    /// It goes on.
    #[default]
    None,
    /// Begin nothing more; finish what is in flight.
    Finish,
    /// Stop now.
    Now,
}

/// What a run looks at.
#[derive(Debug, Clone)]
pub struct Cancel {
    receiver: watch::Receiver<Urgency>,
}

/// What whoever hears the Ctrl-C holds.
#[derive(Debug)]
pub struct CancelHandle {
    sender: watch::Sender<Urgency>,
}

impl Cancel {
    /// Makes a pair.
    pub fn new() -> (CancelHandle, Self) {
        let (sender, receiver) = watch::channel(Urgency::None);
        (CancelHandle { sender }, Self { receiver })
    }

    /// How urgent it is.
    pub fn urgency(&self) -> Urgency {
        *self.receiver.borrow()
    }

    /// Waits until it is at least this urgent; for ever when nobody can ask any more.
    pub async fn at_least(&self, urgency: Urgency) {
        let mut receiver = self.receiver.clone();
        if receiver.wait_for(|now| *now >= urgency).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl CancelHandle {
    /// Asks once more; hands back how urgent it is now.
    pub fn press(&self) -> Urgency {
        let mut now = Urgency::None;
        self.sender.send_modify(|urgency| {
            *urgency = if *urgency == Urgency::None { Urgency::Finish } else { Urgency::Now };
            now = *urgency;
        });
        now
    }
}
