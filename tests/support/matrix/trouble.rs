//! The faults that a call meets, and how it continues.

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The connection is cut before the service has it.
    CutBefore,
    /// The service acts, and the answer is lost.
    AnswerLost,
    /// It is answered, and the process dies before it is written down.
    NotJournalled,
    /// 429 once.
    Limited,
    /// 429 until we give up.
    LimitedForLong,
    /// 500, without an effect.
    Failed,
    /// 500, after the service acted.
    FailedAndDone,
    /// 502 of a proxy in front, without an effect.
    BadGateway,
    /// An HTML page of a proxy in front, without an effect.
    Page,
    /// An HTML page of a proxy in front, after the service acted.
    PageAndDone,
    /// The service acts, and what it answers cannot be read.
    Malformed,
}

impl Trouble {
    /// The fault and how often it comes; `None` when the process is what fails.
    pub(super) fn fault(self, limited: u32) -> Option<(&'static str, u32)> {
        Some(match self {
            Self::CutBefore => ("cut-before", 1),
            Self::AnswerLost => ("cut-after", 1),
            Self::NotJournalled => return None,
            Self::Limited => ("status:429", 1),
            Self::LimitedForLong => ("status:429", limited),
            Self::Failed => ("status:500", 1),
            Self::FailedAndDone => ("after:500", 1),
            Self::BadGateway => ("status:502", 1),
            Self::Page => ("html:502", 1),
            Self::PageAndDone => ("after-html:502", 1),
            Self::Malformed => ("malformed", 1),
        })
    }
}

/// How the run continues after the fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// The same command again, and `down` at the end.
    Again,
    /// `down` at once.
    Down,
    /// The state is lost, and `gc` cleans up.
    Gc,
}

pub(crate) const THENS: [Then; 3] = [Then::Again, Then::Down, Then::Gc];
