//! The state of a stand-in, shared by all its requests and by who steers it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What changes by itself, as time passes.
pub(super) trait Settle {
    /// Lets everything happen that is due.
    fn settle(&mut self);
}

/// What all requests share.
#[derive(Debug)]
pub(super) struct Shared<T>(Arc<Mutex<T>>);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Settle> Shared<T> {
    pub(super) fn new(state: T) -> Self {
        Self(Arc::new(Mutex::new(state)))
    }

    /// The state, with everything done that is due.
    pub(super) fn state(&self) -> MutexGuard<'_, T> {
        // A test that failed while it looked changes nothing for the others.
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.settle();
        state
    }
}
