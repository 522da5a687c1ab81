//! The conformance suite passes what keeps the contract, and fails what does not in the case it breaks.

mod memory;

use std::time::{Duration, Instant};

use gpucl::provider::conformance::{CaseResult, Outcome, Subject, count, run, run_until};
use memory::{Bug, Memory};

use crate::support::TestEnv;

async fn tried(provider: &Memory) -> Vec<CaseResult> {
    let mut subject = Subject::new(provider).unwrap();
    subject.patience = Duration::from_millis(40);
    run(&subject, &mut |_| {}).await
}

fn failed(results: &[CaseResult]) -> Vec<&'static str> {
    results
        .iter()
        .filter(|result| matches!(result.outcome, Outcome::Failed(_)))
        .map(|result| result.case.name())
        .collect()
}

#[tokio::test]
async fn a_provider_that_keeps_the_contract_passes() {
    for (provider, applicable) in [
        (Memory::new(false), 14),
        (Memory::new(true), 15),
        (Memory::new(true).late(), 16),
        (Memory::new(false).late(), 15),
    ] {
        let results = tried(&provider).await;
        assert_eq!(failed(&results), [""; 0], "{results:?}");
        assert_eq!(count(&results), (applicable, 0, 18 - applicable));
        assert_eq!(provider.left(), 0, "the suite left something");
    }
}

/// Each bug, and exactly the cases that it fails.
#[rustfmt::skip]
const BROKEN: &[(Bug, &[&str])] = &[
    (Bug::OfferWithoutName, &[]),
    (Bug::OfferWithPriceForNothing, &[]),
    (Bug::ObserveInventsOne, &[]),
    (Bug::ObserveByPrefix, &[]),
    (Bug::ObserveAnyOwner, &[]),
    (Bug::ObserveHidesTheLeaseAlone, &[]),
    (Bug::ObserveTellsAnotherKind, &[]),
    (Bug::AcquireAlwaysMakesOne, &[]),
    (Bug::AcquireSaysNewAlways, &[]),
    (Bug::AcquireRecordsNothing, &[]),
    (Bug::AcquireRecordsOnlyTheNew, &[]),
    (Bug::AcquireIgnoresTheRecorder, &[]),
    (Bug::AcquireRemembersInMemory, &[]),
    (Bug::AcquireForgetsTheHalfMade, &[]),
    (Bug::RefusalIsTemporary, &[]),
    (Bug::RefusalIsUnclear, &[]),
    (Bug::RefusalLeavesOne, &[]),
    (Bug::ExpandIsRandom, &[]),
    (Bug::ExpandNeedsALaterOne, &[]),
    (Bug::ExpandHasTwoHosts, &[]),
    (Bug::PlaceMoves, &[]),
    (Bug::PlaceOfWhatIsGone, &[]),
    (Bug::EffectAfterTheSettleTime, &[]),
    (Bug::SecondReleaseFails, &[]),
    (Bug::ReleaseGoesByKey, &[]),
    (Bug::ReleaseTakesTheOwnersAll, &[]),
    (Bug::ReleaseForgetsTheLease, &[]),
    (Bug::ReleaseCutCannotGoOn, &[]),
    (Bug::ReleaseComesBack, &[]),
    (Bug::PromisesExtend, &[]),
    (Bug::PromisesConsole, &[]),
];

#[tokio::test]
async fn each_broken_provider_fails_the_cases_that_it_breaks() {
    let mut wrong = Vec::new();
    for (bug, expected) in BROKEN {
        let begun = Instant::now();
        let late = *bug == Bug::EffectAfterTheSettleTime;
        let provider = if late {
            Memory::new(true).late()
        } else {
            Memory::new(true)
        }
        .with(*bug);
        let results = tried(&provider).await;
        let failed = failed(&results);
        if failed != *expected {
            wrong.push(format!(
                "    (Bug::{bug:?}, &{failed:?}),\n{:#?} {:?}",
                results
                    .iter()
                    .filter(|r| matches!(r.outcome, Outcome::Failed(_)))
                    .map(|r| format!("{} {:?}", r.case.name(), r.outcome))
                    .collect::<Vec<_>>(),
                begun.elapsed()
            ));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
