//! Calls that create something and whose answer is lost: only the service's lists show whether they were carried out.

use std::time::Duration;

use tokio::time::Instant;

use crate::error::{Error, LeftBehind, Result};
use crate::provider::Acquired;

/// How long a service may take to show in its lists what was just created.
#[derive(Debug, Clone, Copy)]
pub struct ConsistencyDelay {
    /// The limit: what is not listed by then was not created.
    pub limit: Duration,
    /// The pause between two looks at the list.
    pub pause: Duration,
}

impl ConsistencyDelay {
    /// Looks for the id of what a failed call may have created, until the list would show it.
    ///
    /// # Errors
    /// If `find` fails; else the call's own failure, if nothing is found. It is then unknown what is left behind.
    pub async fn find_made<F>(self, failure: impl Into<Error>, mut find: impl FnMut() -> F) -> Result<Acquired>
    where
        F: Future<Output = Result<Option<String>>>,
    {
        let begun = Instant::now();
        loop {
            // Determined before the look, so that the last look begins after the limit.
            let is_last = begun.elapsed() >= self.limit;
            if let Some(id) = find().await? {
                return Ok(Acquired { id, was_there: false });
            }
            if is_last {
                return Err(failure.into().left(LeftBehind::Unknown));
            }
            tokio::time::sleep(self.pause).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    const DELAY: ConsistencyDelay = ConsistencyDelay { limit: Duration::from_secs(5), pause: Duration::from_secs(1) };

    fn lost() -> Error {
        Error::new(ErrorKind::Provider, "create the server")
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_made_is_found_as_late_as_the_limit() {
        let begun = Instant::now();
        let find = || async { Ok((begun.elapsed() >= DELAY.limit).then(|| "s-1".to_owned())) };
        let found = DELAY.find_made(lost(), find).await.unwrap();
        assert_eq!(found, Acquired { id: "s-1".to_owned(), was_there: false });
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_found_may_be_left_behind() {
        let error = DELAY.find_made(lost(), || async { Ok(None) }).await.unwrap_err();
        assert_eq!((error.kind(), error.left_behind()), (ErrorKind::Provider, &LeftBehind::Unknown));
    }
}
