//! Waits that outlast an outage: what takes minutes or hours is not given up because a service, or the way to it, was gone for a moment.

use crate::error::{Error, Result, Status};
use crate::event::Bus;

/// Looks that may fail for a while.
#[derive(Debug)]
pub struct Outage {
    events: Bus,
    was_seen: bool,
    is_told: bool,
}

impl Outage {
    /// One that tells when looks fail, and when they succeed again.
    pub fn new(events: &Bus) -> Self {
        Self { events: events.clone(), was_seen: false, is_told: false }
    }

    /// What a look told; `None` when it failed and the next may succeed.
    ///
    /// # Errors
    /// What fails for good; the first look, since nothing is known yet that could be waited for; any once the wait is over.
    pub fn outlast<T>(
        &mut self,
        look: std::result::Result<T, impl Into<Error>>,
        is_over: impl FnOnce() -> bool,
    ) -> Result<Option<T>> {
        let error: Error = match look {
            Ok(told) => {
                self.was_seen = true;
                if std::mem::take(&mut self.is_told) {
                    self.events.note("it answers again");
                }
                return Ok(Some(told));
            }
            Err(error) => error.into(),
        };
        if !self.was_seen || error.retry_status() == Status::Permanent || is_over() {
            return Err(error);
        }
        if !std::mem::replace(&mut self.is_told, true) {
            self.events.warn(format!("{error}; it is asked again for as long as this may take"));
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn what_was_seen_once_is_looked_for_until_it_fails_for_good_or_is_over() {
        let failed = |status| Err::<u8, _>(Error::new(ErrorKind::Provider, "look").status(status));
        let mut outage = Outage::new(&Bus::new().0);
        assert!(outage.outlast(failed(Status::Persistent), || false).is_err(), "nothing was seen yet");
        assert_eq!(outage.outlast(Ok::<_, Error>(1), || false).unwrap(), Some(1));
        for status in [Status::Persistent, Status::Temporary] {
            assert_eq!(outage.outlast(failed(status), || false).unwrap(), None);
            assert!(outage.outlast(failed(status), || true).is_err());
        }
        assert_eq!(outage.outlast(Ok::<_, Error>(2), || true).unwrap(), Some(2));
        assert!(outage.outlast(failed(Status::Permanent), || false).is_err());
    }
}
