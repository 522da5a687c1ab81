//! The conformance suite passes what keeps the contract, and fails what does not in the case it breaks.

mod memory;

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use gpucl::provider::conformance::{Case, CaseResult, Outcome, Subject, count, run, run_until};
use gpucl::provider::{Context, find};
use memory::{Bug, Memory};

use crate::support::TestEnv;

fn subject(provider: &Memory) -> Subject<'_> {
    let mut subject = Subject::new(provider).unwrap();
    // What a healthy one does at once, a broken one never does; there is nothing to wait for.
    subject.patience = Duration::from_millis(40);
    subject
}

fn failed(results: &[CaseResult]) -> Vec<&'static str> {
    let broken = results
        .iter()
        .filter(|result| matches!(result.outcome, Outcome::Failed(_)));
    broken.map(|result| result.case.name()).collect()
}

#[tokio::test]
async fn a_provider_that_keeps_the_contract_passes() {
    let providers = [
        (Memory::new(false), 14),
        (Memory::new(true), 15),
        (Memory::new(false).late(), 15),
        (Memory::new(true).late(), 16),
    ];
    for (provider, passed) in providers {
        let results = run(&subject(&provider), &mut |_| {}).await;
        assert_eq!(
            count(&results),
            (passed, 0, Case::ALL.len() - passed),
            "{results:#?}"
        );
        assert_eq!(provider.left(), 0, "the suite left something");
    }
}

/// Each bug, and exactly the cases that it fails.
#[rustfmt::skip]
const BROKEN: &[(Bug, &[&str])] = &[
    (Bug::OfferWithoutName, &["offers-are-readable"]),
    (Bug::OfferWithPriceForNothing, &["offers-are-readable"]),
    (Bug::ObserveInventsOne, &["observe-of-nothing-is-empty"]),
    (Bug::ObserveByPrefix, &["foreign-owner-untouched"]),
    (Bug::ObserveAnyOwner, &["foreign-owner-untouched"]),
    (Bug::ObserveHidesTheLeaseAlone, &[
        "acquire-shows-in-observe", "acquire-twice-with-one-key", "id-recorded-before-acquire-returns",
        "partial-acquire", "place-of-a-host", "answer-lost-after-the-effect", "cancel-in-the-middle", "release-twice",
        "release-of-what-never-was", "foreign-owner-untouched",
    ]),
    (Bug::ObserveTellsAnotherKind, &["acquire-shows-in-observe"]),
    (Bug::AcquireAlwaysMakesOne, &[
        "acquire-twice-with-one-key", "id-recorded-before-acquire-returns", "partial-acquire",
        "answer-lost-after-the-effect", "cancel-in-the-middle",
    ]),
    (Bug::AcquireSaysNewAlways, &["acquire-twice-with-one-key"]),
    (Bug::AcquireRecordsNothing, &["id-recorded-before-acquire-returns"]),
    (Bug::AcquireRecordsOnlyTheNew, &["id-recorded-before-acquire-returns"]),
    (Bug::AcquireIgnoresTheRecorder, &["id-recorded-before-acquire-returns"]),
    (Bug::AcquireRemembersInMemory, &[
        "id-recorded-before-acquire-returns", "answer-lost-after-the-effect", "cancel-in-the-middle",
    ]),
    (Bug::AcquireForgetsTheHalfMade, &["cancel-in-the-middle"]),
    (Bug::RefusalIsTemporary, &["errors-are-classified"]),
    (Bug::RefusalIsUnclear, &["errors-are-classified"]),
    (Bug::RefusalLeavesOne, &["errors-are-classified"]),
    (Bug::ExpandIsRandom, &["expand-is-pure-and-complete", "partial-acquire", "release-of-what-never-was"]),
    (Bug::ExpandNeedsALaterOne, &["expand-is-pure-and-complete"]),
    (Bug::ExpandHasTwoHosts, &["expand-is-pure-and-complete"]),
    (Bug::PlaceMoves, &["place-of-a-host"]),
    (Bug::PlaceOfWhatIsGone, &["place-of-a-host"]),
    (Bug::EffectAfterTheSettleTime, &[
        "acquire-shows-in-observe", "acquire-twice-with-one-key", "id-recorded-before-acquire-returns",
        "partial-acquire", "place-of-a-host", "answer-lost-after-the-effect", "cancel-in-the-middle", "late-effect",
        "release-twice", "release-of-what-never-was", "foreign-owner-untouched",
    ]),
    (Bug::SecondReleaseFails, &["release-twice", "release-of-what-never-was"]),
    (Bug::ReleaseGoesByKey, &["release-of-what-never-was"]),
    (Bug::ReleaseTakesTheOwnersAll, &["release-of-what-never-was", "foreign-owner-untouched"]),
    (Bug::ReleaseForgetsTheLease, &[
        "id-recorded-before-acquire-returns", "partial-acquire", "place-of-a-host", "cancel-in-the-middle",
        "release-twice", "release-of-what-never-was", "foreign-owner-untouched", "everything-is-released-at-the-end",
    ]),
    (Bug::ReleaseCutCannotGoOn, &["cancel-in-the-middle", "everything-is-released-at-the-end"]),
    (Bug::ReleaseComesBack, &["place-of-a-host", "cancel-in-the-middle", "everything-is-released-at-the-end"]),
    (Bug::PromisesExtend, &["extend"]),
    (Bug::PromisesConsole, &["console"]),
];

#[tokio::test]
async fn each_broken_provider_fails_the_cases_that_it_breaks() {
    for (bug, expected) in BROKEN {
        let late = *bug == Bug::EffectAfterTheSettleTime;
        let provider = if late {
            Memory::new(true).late()
        } else {
            Memory::new(true)
        }
        .with(*bug);
        let results = run(&subject(&provider), &mut |_| {}).await;
        assert_eq!(failed(&results), *expected, "{bug:?}: {results:#?}");
    }
}

#[test]
fn each_case_has_a_provider_that_fails_it() {
    for case in Case::ALL {
        assert!(
            BROKEN.iter().any(|(_, fails)| fails.contains(&case.name())),
            "nothing fails {}",
            case.name()
        );
    }
}

/// A suite that is not sure what is ours must release nothing.
#[tokio::test]
async fn a_provider_that_shows_what_never_was_is_tried_no_further() {
    let provider = Memory::new(true).with(Bug::ObserveInventsOne);
    let results = run(&subject(&provider), &mut |_| {}).await;
    assert_eq!(
        results.last().map(|result| result.case),
        Some(Case::ObserveOfNothingIsEmpty)
    );
    assert_eq!(provider.releases(), 0);
}

#[tokio::test]
async fn a_run_that_is_stopped_anywhere_leaves_nothing() {
    let (mut points, mut whole) = (0, false);
    while !whole {
        points += 11;
        let provider = Memory::new(true);
        let mut left = points;
        let stop = poll_fn(move |_| {
            left -= 1;
            if left == 0 {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        });
        let results = run_until(&subject(&provider), stop, &mut |_| {}).await;
        assert_eq!(
            provider.left(),
            0,
            "stopped after {points} polls: {results:#?}"
        );
        let last = results.last().unwrap();
        assert_eq!(
            (last.case, &last.outcome),
            (Case::EverythingIsReleasedAtTheEnd, &Outcome::Passed)
        );
        whole = results.len() == Case::ALL.len() && failed(&results).is_empty();
    }
    assert!(
        points > 200,
        "the run was stopped at too few points: {points}"
    );
}

/// The cases and how they ended, without times: what is committed beside each provider.
fn listing(results: &[CaseResult]) -> String {
    let line = |result: &CaseResult| match &result.outcome {
        Outcome::Passed => format!("{} passed\n", result.case.name()),
        Outcome::NotApplicable(capability) => format!("{} n/a: {capability}\n", result.case.name()),
        Outcome::Failed(what) => format!("{} FAILED: {what}\n", result.case.name()),
    };
    results.iter().map(line).collect()
}

#[tokio::test]
async fn local_keeps_the_contract_as_committed() {
    let env = TestEnv::new();
    let (events, _inbox) = gpucl::event::Bus::new();
    let context = Context {
        data_dir: env.home().join("data"),
        cache_dir: env.home().join("cache"),
        runtime_dir: env.root().join("run"),
        events,
    };
    let provider = find("local")
        .unwrap()
        .open(&serde_json::json!({}), &context)
        .unwrap();
    let results = run(&Subject::new(provider.as_ref()).unwrap(), &mut |_| {}).await;
    assert_eq!(
        listing(&results),
        include_str!("../providers/local/conformance.txt")
    );
    let hosts = std::fs::read_dir(env.home().join("data/hosts")).unwrap();
    assert_eq!(hosts.count(), 0, "the suite left a folder");
}
