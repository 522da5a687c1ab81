//! The one error of the core: what we were doing, to what, why it failed, what it left behind, and what to do.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The result of nearly everything here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What kind of failure it is; the command line maps it to an exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// The command line or the choice of a cluster is wrong; nothing was done.
    Usage,
    /// The spec is wrong; nothing was done.
    Spec,
    /// The state on this machine cannot be read or written.
    State,
    /// Another gpucl works on this cluster.
    Locked,
    /// A provider refused or failed.
    Provider,
    /// A provider has none of what was asked for now; it may have some later.
    Capacity,
    /// A host cannot be reached or a program on it failed.
    Host,
    /// Ray, or a node of it, failed.
    Ray,
    /// The cluster runs but a check did not pass.
    NotReady,
    /// Something of the cluster is still there after `down`.
    LeftBehind,
    /// What was asked for does not exist.
    NotFound,
    /// The person at the keyboard stopped it.
    Cancelled,
    /// A wait reached its limit.
    Timeout,
    /// What was asked for is not something this version or this provider can do.
    Unsupported,
    /// A mistake of ours.
    Internal,
}

/// Whether trying again may help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It will fail again until something is changed.
    #[default]
    Permanent,
    /// It may succeed when tried again.
    Temporary,
    /// It was temporary, was tried again, and went on failing.
    Persistent,
}

/// What a failed call left at the provider or on the host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftBehind {
    /// Nothing.
    #[default]
    Clear,
    /// These ids.
    Remaining(Vec<String>),
    /// It cannot be told; only `observe` knows.
    Unknown,
}

/// An error of the core. Cloned, written and read again it is the same, with all that it says.
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
    /// Makes an error of what we were doing and to what: `start worker-0 of cluster demo`.
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

    /// Adds an error and all that caused it.
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

    /// Adds what to do, best a command that can be run.
    #[must_use]
    pub fn hint(mut self, hint: impl fmt::Display) -> Self {
        self.inner.hints.push(hint.to_string());
        self
    }

    /// Says whether trying again may help.
    #[must_use]
    pub fn status(mut self, status: Status) -> Self {
        self.inner.status = status;
        self
    }

    /// Says what the failed call left behind.
    #[must_use]
    pub fn left(mut self, left_behind: LeftBehind) -> Self {
        self.inner.left_behind = left_behind;
        self
    }

    /// Shows the piece of a file that is meant.
    #[must_use]
    pub fn snippet(mut self, snippet: impl Into<String>) -> Self {
        self.inner.snippet = Some(snippet.into());
        self
    }

    /// Puts what we were doing at a higher level in front; what was the headline becomes the first cause.
    #[must_use]
    pub fn while_doing(mut self, doing: impl Into<String>) -> Self {
        let before = std::mem::replace(&mut self.inner.doing, doing.into());
        self.inner.causes.insert(0, before);
        self
    }

    /// What kind of failure it is.
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// Whether trying again may help.
    pub fn retry_status(&self) -> Status {
        self.inner.status
    }

    /// What the failed call left behind.
    pub fn left_behind(&self) -> &LeftBehind {
        &self.inner.left_behind
    }

    /// What we were doing.
    pub fn doing(&self) -> &str {
        &self.inner.doing
    }

    /// The causes, outermost first.
    pub fn causes(&self) -> &[String] {
        &self.inner.causes
    }

    /// What to do.
    pub fn hints(&self) -> &[String] {
        &self.inner.hints
    }

    /// The piece of a file that is meant.
    pub fn shown_snippet(&self) -> Option<&str> {
        self.inner.snippet.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.inner.doing)?;
        // A piece of a file begins with what is wrong in it.
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

/// Gives an I/O or other foreign error its place: what we were doing.
pub trait Doing<T> {
    /// Makes it an [`Error`] of this kind.
    fn doing(self, kind: ErrorKind, doing: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: std::error::Error> Doing<T> for std::result::Result<T, E> {
    fn doing(self, kind: ErrorKind, doing: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Error::new(kind, doing()).caused_by(&error))
    }
}
