//! The cases by their names, and the run through them.

use std::future::Future;
use std::pin::pin;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;

use super::bench::Bench;
use super::{acquiring, broken_off, reading, releasing};
use crate::error::Result;
use crate::name::Owner;
use crate::provider::{Provider, ProviderKind};
use crate::util::random;

/// What is tried.
pub struct Subject<'a> {
    /// The provider.
    pub provider: &'a dyn Provider,
    /// The entry of `hosts:` that is asked for.
    pub host: Value,
    /// Whose the resources are.
    pub owner: Owner,
    /// The other owner in the same account.
    pub stranger: Owner,
    /// How long a resource may take until it is usable, or until it is gone.
    pub patience: Duration,
    /// How long after a call its effect may be missing from `observe`: the capability's, or less where it is known to be less.
    pub consistency_delay: Duration,
    /// After how many polls a call is dropped: one try each, in this order.
    pub cuts: Vec<usize>,
}

/// The most polls after which a call is dropped.
const MOST_POLLS: usize = 64;
/// Where each try takes minutes, and money.
const FEW_CUTS: [usize; 5] = [1, 3, 9, 27, MOST_POLLS];

impl<'a> Subject<'a> {
    /// Makes one that asks for a host without settings, under owners that nobody else has.
    pub fn new(provider: &'a dyn Provider) -> Result<Self> {
        let owner = || random::letters(8)?.parse().map_err(internal);
        let host = Value::Object(serde_json::Map::new());
        let capability = provider.capability();
        let (minutes, cuts) =
            if capability.costs_money { (40, FEW_CUTS.to_vec()) } else { (1, (1..=MOST_POLLS).collect()) };
        let patience = Duration::from_secs(minutes * 60);
        Ok(Self {
            provider,
            host,
            owner: owner()?,
            stranger: owner()?,
            patience,
            consistency_delay: capability.consistency_delay,
            cuts,
        })
    }
}

fn internal(error: crate::name::NameError) -> crate::error::Error {
    crate::error::Error::new(crate::error::ErrorKind::Internal, "make an owner").caused_by(&error)
}

/// How a case ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "outcome", content = "detail")]
pub enum Outcome {
    /// The provider keeps this part of the contract.
    Passed,
    /// This capability says that there is nothing to keep.
    NotApplicable(&'static str),
    /// It does not; what was seen.
    Failed(String),
}

/// A case and how it ended.
#[derive(Debug, Clone)]
pub struct CaseResult {
    /// The case.
    pub case: Case,
    /// How it ended.
    pub outcome: Outcome,
    /// How long it took.
    pub elapsed: Duration,
}

/// Why a case does not go on to its end.
#[derive(Debug)]
pub(super) enum Stop {
    /// There is nothing to try.
    NotApplicable(&'static str),
    /// The contract is broken.
    Broken(String),
}

/// What a case or a part of it gives.
pub(super) type Verdict<T = ()> = std::result::Result<T, Stop>;

/// Ends a case as failed.
pub(super) fn broken<T>(what: impl Into<String>) -> Verdict<T> {
    Err(Stop::Broken(what.into()))
}

/// Ends a case as failed unless this holds.
pub(super) fn ensure(holds: bool, what: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { broken(what()) }
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

            /// Its name, which does not change.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// What must hold, in one sentence.
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
        "Every offer has a name, a place, a time and processors, and a price exactly where things cost money.";
    ObserveOfNothingIsEmpty, "observe-of-nothing-is-empty", reading::nothing,
        "A cluster that never was shows no resources.";
    ExpandIsPureAndComplete, "expand-is-pure-and-complete", reading::expand,
        "The resources of a host are the same at every call, ordered, uniquely keyed, and make nothing.";
    AcquireShowsInObserve, "acquire-shows-in-observe", acquiring::shows,
        "What was acquired shows under its key, kind and id, and becomes usable.";
    AcquireTwiceWithOneKey, "acquire-twice-with-one-key", acquiring::twice,
        "A repeated acquire hands back what is there and makes no second one.";
    IdRecordedBeforeAcquireReturns, "id-recorded-before-acquire-returns", acquiring::recorded,
        "The id is with the recorder before acquire returns, and acquire fails when the recorder does.";
    ErrorsAreClassified, "errors-are-classified", acquiring::errors,
        "A request that must be refused is refused for good, says that nothing is left, and leaves nothing.";
    PartialAcquire, "partial-acquire", acquiring::partial,
        "A host that was acquired half-way shows the half, and is completed or released.";
    PlaceOfAHost, "place-of-a-host", acquiring::place,
        "A usable host has a place, and one that is gone has none.";
    AnswerLostAfterTheEffect, "answer-lost-after-the-effect", broken_off::answer_lost,
        "When the answer is lost after the effect, a repeated acquire hands back the same id.";
    CancelInTheMiddle, "cancel-in-the-middle", broken_off::cancel,
        "A call may be dropped at any point: never two under one key, and nothing that cannot be released.";
    LateEffect, "late-effect", broken_off::late,
        "An effect shows within the consistency_delay time, and is never doubled.";
    ReleaseTwice, "release-twice", releasing::twice,
        "A release of what is gone already is success.";
    ReleaseOfWhatNeverWas, "release-of-what-never-was", releasing::never_was,
        "A release of an id that is not there is success, and touches nothing that took its key since.";
    ForeignOwnerUntouched, "foreign-owner-untouched", releasing::foreign,
        "Another owner's cluster of the same name, and the cluster `a-b` beside `a`, are neither seen nor touched.";
    Extend, "extend", reading::extend,
        "A reservation can be made longer.";
    Console, "console", reading::console,
        "A host's console can be read.";
    EverythingIsReleasedAtTheEnd, "everything-is-released-at-the-end", releasing::everything,
        "Nothing of this run is left.";
}

/// Runs all cases; hands each result on as it comes, and all at the end.
pub async fn run(subject: &Subject<'_>, report: &mut (dyn FnMut(&CaseResult) + Send)) -> Vec<CaseResult> {
    run_until(subject, std::future::pending(), report).await
}

/// Runs the cases until `stop` is ready: the case in progress then fails as stopped, those after it are left out, and
/// what was made is removed all the same.
///
/// A provider that shows something of a cluster that never was is tried no further: what it shows may be somebody's, and
/// the suite would release it.
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

/// How many passed, failed, and were not applicable.
pub fn count(results: &[CaseResult]) -> (usize, usize, usize) {
    results.iter().fold((0, 0, 0), |(passed, failed, other), result| match result.outcome {
        Outcome::Passed => (passed + 1, failed, other),
        Outcome::Failed(_) => (passed, failed + 1, other),
        Outcome::NotApplicable(_) => (passed, failed, other + 1),
    })
}

/// Ends a case that is for providers of hosts only.
pub(super) fn hosts_only(bench: &Bench<'_>) -> Verdict {
    match bench.capability().kind {
        ProviderKind::Host => Ok(()),
        ProviderKind::Platform => Err(Stop::NotApplicable("kind")),
    }
}
