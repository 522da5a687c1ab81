//! How a case ends early.

/// Why a case stops early.
#[derive(Debug)]
pub(super) enum Stop {
    /// The provider does not have this capability.
    NotApplicable(&'static str),
    /// The provider breaks the contract.
    Broken(String),
}

/// The result of a case or a part of it.
pub(super) type Verdict<T = ()> = std::result::Result<T, Stop>;

/// Ends a case as failed.
pub(super) fn broken<T>(what: impl Into<String>) -> Verdict<T> {
    Err(Stop::Broken(what.into()))
}

/// Ends a case as failed unless the condition holds.
pub(super) fn ensure(holds: bool, what: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { broken(what()) }
}
