//! The state of a stand-in, shared by all its requests and by its control.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::answer::{Answer, Ask};
use super::clock::Clock;
use super::door::Door;
use super::faults::Faults;

/// The state of a stand-in: it changes as time passes, and answers requests.
pub(super) trait StandIn: Send + Sized + 'static {
    fn clock(&mut self) -> &mut Clock;

    fn faults(&mut self) -> &mut Faults;

    /// Applies everything that is due.
    fn advance(&mut self);

    /// Answers a request to the control that is for this stand-in only.
    fn control(&mut self, ask: &Ask) -> Answer;

    /// Answers a request to a service, and logs it; `None` cuts the connection.
    fn answer(
        shared: &Shared<Self>,
        service: &str,
        ask: &Ask,
        path: &str,
    ) -> impl Future<Output = Option<Answer>> + Send;
}

/// The access checks and the state, shared by all requests.
#[derive(Debug)]
pub(super) struct Shared<T>(Arc<(Door, Mutex<T>)>);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: StandIn> Shared<T> {
    pub(super) fn new(door: Door, state: T) -> Self {
        Self(Arc::new((door, Mutex::new(state))))
    }

    /// The access checks.
    pub(super) fn door(&self) -> &Door {
        &self.0.0
    }

    /// Locks the state, after everything due was applied.
    pub(super) fn state(&self) -> MutexGuard<'_, T> {
        // A test that panicked with the lock held must not break the others.
        let mut state = self.0.1.lock().unwrap_or_else(PoisonError::into_inner);
        state.advance();
        state
    }
}
