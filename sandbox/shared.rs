//! The state of a stand-in, shared by all its requests and by who steers it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::door::Door;

/// What changes by itself, as time passes.
pub(super) trait Advance {
    /// Lets everything happen that is due.
    fn advance(&mut self);
}

/// What all requests share.
#[derive(Debug)]
pub(super) struct Shared<T>(Arc<(Door, Mutex<T>)>);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Advance> Shared<T> {
    pub(super) fn new(door: Door, state: T) -> Self {
        Self(Arc::new((door, Mutex::new(state))))
    }

    /// Who is heard.
    pub(super) fn door(&self) -> &Door {
        &self.0.0
    }

    /// The state, with everything done that is due.
    pub(super) fn state(&self) -> MutexGuard<'_, T> {
        // A test that failed while it looked changes nothing for the others.
        let mut state = self.0.1.lock().unwrap_or_else(PoisonError::into_inner);
        state.advance();
        state
    }
}
