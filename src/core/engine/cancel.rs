//! Cancellation by Ctrl-C, or by another process: once = begin nothing more and wait for nothing, twice = drop calls in flight, too.

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

/// Who ended a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum By {
    /// The user, with Ctrl-C.
    #[default]
    CtrlC,
    /// Another process, with SIGTERM.
    Process,
}

impl std::fmt::Display for By {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::CtrlC => "it was stopped with Ctrl-C",
            Self::Process => {
                "another process stopped it (SIGTERM), as a cluster's agent does at the end of the cluster"
            }
        })
    }
}

/// The receiving side, checked by a run.
#[derive(Debug, Clone)]
pub struct Cancel {
    receiver: watch::Receiver<(Urgency, By)>,
}

/// The sending side, held by the handler of Ctrl-C.
#[derive(Debug)]
pub struct CancelHandle {
    sender: watch::Sender<(Urgency, By)>,
}

impl Cancel {
    /// Creates a connected pair.
    pub fn new() -> (CancelHandle, Self) {
        let (sender, receiver) = watch::channel(<(Urgency, By)>::default());
        (CancelHandle { sender }, Self { receiver })
    }

    /// The current urgency.
    pub fn urgency(&self) -> Urgency {
        self.receiver.borrow().0
    }

    /// Who has ended it: whoever was the first.
    pub fn by(&self) -> By {
        self.receiver.borrow().1
    }

    /// Waits until the urgency is at least this; forever if the handle is dropped first.
    pub async fn at_least(&self, urgency: Urgency) {
        let mut receiver = self.receiver.clone();
        if receiver.wait_for(|now| now.0 >= urgency).await.is_err() {
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
                .because(format!("{}; what was requested is on record", self.by()))),
        }
    }
}

impl CancelHandle {
    /// Raises the urgency by one step and returns it.
    pub fn press(&self, by: By) -> Urgency {
        let mut now = Urgency::None;
        self.sender.send_modify(|state| {
            *state = if state.0 == Urgency::None { (Urgency::Finish, by) } else { (Urgency::Now, state.1) };
            now = state.0;
        });
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_was_first_is_named() {
        let (handle, cancel) = Cancel::new();
        handle.press(By::Process);
        assert_eq!(handle.press(By::CtrlC), Urgency::Now);
        let error = cancel.unless_pressed("wait", std::future::pending::<Result<()>>()).await.unwrap_err();
        assert!(error.to_string().contains("another process stopped it (SIGTERM)"), "{error}");
    }
}
