//! The condition of a container or process, in Docker's words.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a container or process does now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContainerState {
    /// It was created and has never run.
    Created,
    /// It runs.
    Running,
    /// It is frozen.
    Paused,
    /// It ended and is about to be started again.
    Restarting,
    /// It is being removed.
    Removing,
    /// It ended.
    Exited,
    /// It could not be removed completely.
    Dead,
    /// Any other word.
    #[serde(untagged)]
    Other(String),
}

/// The result of a container's own health check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContainerHealth {
    /// It may still fail its check.
    Starting,
    /// The check passes.
    Healthy,
    /// The check fails.
    Unhealthy,
    /// Any other word.
    #[serde(untagged)]
    Other(String),
}

impl fmt::Display for ContainerState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Created => "created",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Restarting => "restarting",
            Self::Removing => "removing",
            Self::Exited => "exited",
            Self::Dead => "dead",
            Self::Other(word) => word,
        })
    }
}

impl fmt::Display for ContainerHealth {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Starting => "starting",
            Self::Healthy => "healthy",
            Self::Unhealthy => "unhealthy",
            Self::Other(word) => word,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::{Debug, Display};

    use serde::Serialize;
    use serde::de::DeserializeOwned;

    use super::*;

    /// Its JSON and its text, which are the same word.
    #[track_caller]
    fn is_the_word<T: Serialize + DeserializeOwned + Display + PartialEq + Debug>(word: &str, is: T) {
        let json = serde_json::Value::from(word);
        assert_eq!((serde_json::to_value(&is).unwrap(), is.to_string()), (json.clone(), word.to_owned()));
        assert_eq!(serde_json::from_value::<T>(json).unwrap(), is);
    }

    #[test]
    fn words_of_the_engine_are_kept_and_unknown_ones_too() {
        is_the_word("created", ContainerState::Created);
        is_the_word("running", ContainerState::Running);
        is_the_word("paused", ContainerState::Paused);
        is_the_word("restarting", ContainerState::Restarting);
        is_the_word("removing", ContainerState::Removing);
        is_the_word("exited", ContainerState::Exited);
        is_the_word("dead", ContainerState::Dead);
        is_the_word("stopping", ContainerState::Other("stopping".to_owned()));
        is_the_word("starting", ContainerHealth::Starting);
        is_the_word("healthy", ContainerHealth::Healthy);
        is_the_word("unhealthy", ContainerHealth::Unhealthy);
        is_the_word("none", ContainerHealth::Other("none".to_owned()));
    }
}
