//! The core's only error type: the failed action, its causes, what it left behind, and hints.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A result with the core's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of a failure; the command line maps it to an exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// The command line or the selected cluster is wrong; nothing was done.
    Usage,
    /// The spec is wrong; nothing was done.
    Spec,
    /// The state on this machine cannot be read or written.
    State,
    /// Another gpucl process is working on this cluster.
    Locked,
    /// A provider refused a request or failed.
    Provider,
    /// A provider has no capacity for the request now; it may have some later.
    Capacity,
    /// A host cannot be reached, or a program on it failed.
    Host,
    /// Ray, or one of its nodes, failed.
    Ray,
    /// The cluster runs, but a check did not pass.
    NotReady,
    /// Part of the cluster still exists after `down`.
    LeftBehind,
    /// The requested thing does not exist.
    NotFound,
    /// The user stopped it.
    Cancelled,
    /// A wait reached its limit.
    Timeout,
    /// This version or this provider does not support the request.
    Unsupported,
    /// A bug in gpucl.
    Internal,
}

/// Whether a retry may help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// A retry fails again until something is changed.
    #[default]
    Permanent,
    /// A retry may succeed.
    Temporary,
    /// Temporary, but the retries failed as well.
    Persistent,
}

/// What a failed call left at the provider or on a host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftBehind {
    /// Nothing.
    #[default]
    Clear,
    /// Resources with these ids.
    Remaining(Vec<String>),
    /// Unknown; only `observe` can determine it.
    Unknown,
}

/// An error of the core. Cloning and serialization keep everything in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Error {
    inner: Box<Inner>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Inner {
    kind: ErrorKind,
    status: Status,
    doing: String,
    causes: Vec<String>,
    hints: Vec<String>,
    left_behind: LeftBehind,
    snippet: Option<String>,
}

impl Error {
    /// Creates an error from the failed action and its target: `start worker-0 of cluster demo`.
    pub fn new(kind: ErrorKind, doing: impl Into<String>) -> Self {
        Self {
            inner: Box::new(Inner {
                kind,
                status: Status::default(),
                doing: doing.into(),
                causes: Vec::new(),
                hints: Vec::new(),
                left_behind: LeftBehind::default(),
                snippet: None,
            }),
        }
    }

    /// Adds the next cause, a lowercase fragment.
    #[must_use]
    pub fn because(mut self, cause: impl fmt::Display) -> Self {
        self.inner.causes.push(cause.to_string());
        self
    }

    /// Adds an error and its chain of sources as causes.
    #[must_use]
    pub fn caused_by(mut self, error: &dyn std::error::Error) -> Self {
        let mut next = Some(error);
        while let Some(error) = next {
            let text = error.to_string();
            if self.inner.causes.last() != Some(&text) {
                self.inner.causes.push(text);
            }
            next = error.source();
        }
        self
    }

    /// Adds a hint, preferably a command that can be run.
    #[must_use]
    pub fn hint(mut self, hint: impl fmt::Display) -> Self {
        self.inner.hints.push(hint.to_string());
        self
    }

    /// Sets whether a retry may help.
    #[must_use]
    pub fn status(mut self, status: Status) -> Self {
        self.inner.status = status;
        self
    }

    /// Sets what the failed call left behind.
    #[must_use]
    pub fn left(mut self, left_behind: LeftBehind) -> Self {
        self.inner.left_behind = left_behind;
        self
    }

    /// Adds the excerpt of the file that the error refers to.
    #[must_use]
    pub fn snippet(mut self, snippet: impl Into<String>) -> Self {
        self.inner.snippet = Some(snippet.into());
        self
    }

    /// Sets a higher-level action as the headline; the previous headline becomes the first cause.
    #[must_use]
    pub fn while_doing(mut self, doing: impl Into<String>) -> Self {
        let before = std::mem::replace(&mut self.inner.doing, doing.into());
        self.inner.causes.insert(0, before);
        self
    }

    /// The kind of the failure.
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// Whether a retry may help.
    pub fn retry_status(&self) -> Status {
        self.inner.status
    }

    /// What the failed call left behind.
    pub fn left_behind(&self) -> &LeftBehind {
        &self.inner.left_behind
    }

    /// The action that failed, as it follows on "failed to".
    pub fn doing(&self) -> &str {
        &self.inner.doing
    }

    /// The causes, outermost first.
    pub fn causes(&self) -> &[String] {
        &self.inner.causes
    }

    /// The hints, in the order in which they were added.
    pub fn hints(&self) -> &[String] {
        &self.inner.hints
    }

    /// The excerpt of the file that the error refers to.
    pub fn shown_snippet(&self) -> Option<&str> {
        self.inner.snippet.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.inner.doing)?;
        // A snippet's first line says what is wrong.
        if let Some(first) = self.inner.snippet.as_deref().and_then(|snippet| snippet.lines().next()) {
            write!(out, ": {}", first.trim())?;
        }
        for cause in &self.inner.causes {
            write!(out, ": {cause}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

/// Converts an I/O or other foreign error into an [`Error`].
pub trait Doing<T> {
    /// Converts it into an [`Error`] of this kind; `doing` is the action that failed.
    fn doing(self, kind: ErrorKind, doing: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: std::error::Error> Doing<T> for std::result::Result<T, E> {
    fn doing(self, kind: ErrorKind, doing: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Error::new(kind, doing()).caused_by(&error))
    }
}
