//! The cases by name, and the run of the suite.

use std::future::Future;
use std::pin::pin;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::bench::Bench;
use super::subject::Subject;
use super::verdict::{Stop, Verdict, broken};
use super::{acquiring, broken_off, reading, releasing};

/// How a case ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "outcome", content = "detail")]
pub enum Outcome {
    /// The provider keeps this part of the contract.
    Passed,
    /// The provider does not have this capability, so there is nothing to test.
    NotApplicable(&'static str),
    /// The provider breaks the contract; what was observed.
    Failed(String),
}

/// A case and how it ended.
#[derive(Debug, Clone)]
pub struct CaseResult {
    /// The case that ran.
    pub case: Case,
    /// How it ended.
    pub outcome: Outcome,
    /// How long it took.
    pub elapsed: Duration,
}

macro_rules! cases {
    ($($variant:ident, $name:literal, $run:path, $doc:literal;)*) => {
        /// One part of the contract.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Case {
            $(#[doc = $doc] $variant,)*
        }

        impl Case {
            /// All cases, in the order in which they run.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The case's stable name.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The obligation that it tests, in one sentence.
            pub fn obligation(self) -> &'static str {
                match self { $(Self::$variant => $doc.trim_ascii(),)* }
            }

            async fn try_it(self, bench: &Bench<'_>) -> Verdict {
                match self { $(Self::$variant => $run(bench).await,)* }
            }
        }
    };
}

cases! {
    OffersAreReadable, "offers-are-readable", reading::offers,
        "Every offer has a name, a place, a time and processors, and a price if and only if things cost money.";
    ObserveOfNothingIsEmpty, "observe-of-nothing-is-empty", reading::nothing,
        "A cluster that never existed shows no resources.";
    ExpandIsPureAndComplete, "expand-is-pure-and-complete", reading::expand,
        "The resources of a host are the same at every call, ordered and uniquely keyed; expanding creates nothing.";
    AcquireShowsInObserve, "acquire-shows-in-observe", acquiring::shows,
        "An acquired resource shows under its key, kind and id, and becomes usable.";
    AcquireTwiceWithOneKey, "acquire-twice-with-one-key", acquiring::twice,
        "A repeated acquire returns the existing resource and creates no second one.";
    IdRecordedBeforeAcquireReturns, "id-recorded-before-acquire-returns", acquiring::recorded,
        "The id is recorded before acquire returns, and acquire fails if the recorder does.";
    ErrorsAreClassified, "errors-are-classified", acquiring::errors,
        "A request that must be refused fails permanently, reports nothing left behind, and leaves nothing.";
    PartialAcquire, "partial-acquire", acquiring::partial,
        "A half-acquired host shows what exists, and can be completed or released.";
    PlaceOfAHost, "place-of-a-host", acquiring::place,
        "A usable host has a place, and a released one has none.";
    AnswerLostAfterTheEffect, "answer-lost-after-the-effect", broken_off::answer_lost,
        "If the answer is lost after the effect, a repeated acquire returns the same id.";
    CancelInTheMiddle, "cancel-in-the-middle", broken_off::cancel,
        "A call may be dropped at any point: never two resources with one key, and none that cannot be released.";
    LateEffect, "late-effect", broken_off::late,
        "An effect shows within the consistency delay, and is never doubled.";
    ReleaseTwice, "release-twice", releasing::twice,
        "Releasing a resource that is already gone succeeds.";
    ReleaseOfWhatNeverWas, "release-of-what-never-was", releasing::never_was,
        "Releasing an id that does not exist succeeds, and does not affect a newer resource with the same key.";
    ForeignOwnerUntouched, "foreign-owner-untouched", releasing::foreign,
        "Another owner's cluster of the same name, and the cluster `a-b` beside `a`, are neither shown nor changed.";
    Extend, "extend", reading::extend,
        "A reservation can be extended.";
    EverythingIsReleasedAtTheEnd, "everything-is-released-at-the-end", releasing::everything,
        "Nothing from this run is left behind.";
}

/// Runs all cases; reports each result as it comes, and returns all of them.
pub async fn run(subject: &Subject<'_>, report: &mut (dyn FnMut(&CaseResult) + Send)) -> Vec<CaseResult> {
    run_until(subject, std::future::pending(), report).await
}

/// Runs the cases until `stop` is ready: the case in progress then fails as stopped, the remaining ones are skipped,
/// and the cleanup still runs.
///
/// If a provider shows resources for a cluster that never existed, the run ends there: they may be somebody's, and the
/// suite would release them.
pub async fn run_until(
    subject: &Subject<'_>,
    stop: impl Future<Output = ()>,
    report: &mut (dyn FnMut(&CaseResult) + Send),
) -> Vec<CaseResult> {
    let bench = Bench::new(subject);
    let mut stop = pin!(stop);
    let mut stopped = false;
    let mut results = Vec::new();
    for &case in Case::ALL {
        if stopped && case != Case::EverythingIsReleasedAtTheEnd {
            continue;
        }
        let begun = Instant::now();
        let verdict = if stopped {
            case.try_it(&bench).await
        } else {
            tokio::select! {
                biased;
                () = &mut stop => {
                    stopped = true;
                    if case == Case::EverythingIsReleasedAtTheEnd { case.try_it(&bench).await } else { broken("stopped") }
                }
                verdict = case.try_it(&bench) => verdict,
            }
        };
        let unsafe_to_go_on =
            !stopped && case == Case::ObserveOfNothingIsEmpty && matches!(verdict, Err(Stop::Broken(_)));
        if !unsafe_to_go_on {
            bench.clean().await;
        }
        let outcome = match verdict {
            Ok(()) => Outcome::Passed,
            Err(Stop::NotApplicable(capability)) => Outcome::NotApplicable(capability),
            Err(Stop::Broken(what)) => Outcome::Failed(what),
        };
        let result = CaseResult { case, outcome, elapsed: begun.elapsed() };
        report(&result);
        results.push(result);
        if unsafe_to_go_on {
            break;
        }
    }
    results
}

/// The numbers of passed, failed and not applicable cases.
pub fn count(results: &[CaseResult]) -> (usize, usize, usize) {
    results.iter().fold((0, 0, 0), |(passed, failed, other), result| match result.outcome {
        Outcome::Passed => (passed + 1, failed, other),
        Outcome::Failed(_) => (passed, failed + 1, other),
        Outcome::NotApplicable(_) => (passed, failed, other + 1),
    })
}
