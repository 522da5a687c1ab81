//! Waits that survive an outage: a wait of minutes or hours does not fail because a service was briefly unreachable.

use crate::error::{Error, Result, Status};
use crate::event::Bus;

/// Tolerates temporary failures of repeated checks.
#[derive(Debug)]
pub struct Outage {
    events: Bus,
    has_succeeded: bool,
    is_reported: bool,
}

impl Outage {
    /// Creates one that reports when checks begin to fail and when they succeed again.
    pub fn new(events: &Bus) -> Self {
        Self { events: events.clone(), has_succeeded: false, is_reported: false }
    }

    /// Creates one for checks of which one has succeeded already.
    pub fn after_success(events: &Bus) -> Self {
        Self { has_succeeded: true, ..Self::new(events) }
    }

    /// Returns the result of a check; `None` if it failed and the next may succeed.
    ///
    /// # Errors
    /// Any permanent failure; any failure of the first check, since it is not yet known whether there is anything to
    /// wait for; any failure once `is_over` returns true.
    pub fn outlast<T>(
        &mut self,
        check: std::result::Result<T, impl Into<Error>>,
        is_over: impl FnOnce() -> bool,
    ) -> Result<Option<T>> {
        let error: Error = match check {
            Ok(answer) => {
                self.has_succeeded = true;
                if std::mem::take(&mut self.is_reported) {
                    self.events.note("the service responds again");
                }
                return Ok(Some(answer));
            }
            Err(error) => error.into(),
        };
        if !self.has_succeeded || error.retry_status() == Status::Permanent || is_over() {
            return Err(error);
        }
        if !std::mem::replace(&mut self.is_reported, true) {
            self.events.warn(format!("{error}; retrying until the wait's time limit"));
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn after_a_success_failures_are_tolerated_until_one_is_permanent_or_the_wait_is_over() {
        let failed = |status| Err::<u8, _>(Error::new(ErrorKind::Provider, "list").status(status));
        let mut outage = Outage::new(&Bus::new().0);
        assert!(outage.outlast(failed(Status::Persistent), || false).is_err(), "no check has succeeded yet");
        assert_eq!(outage.outlast(Ok::<_, Error>(1), || false).unwrap(), Some(1));
        for status in [Status::Persistent, Status::Temporary] {
            assert_eq!(outage.outlast(failed(status), || false).unwrap(), None);
            assert!(outage.outlast(failed(status), || true).is_err());
        }
        assert_eq!(outage.outlast(Ok::<_, Error>(2), || true).unwrap(), Some(2));
        assert!(outage.outlast(failed(Status::Permanent), || false).is_err());
    }
}
