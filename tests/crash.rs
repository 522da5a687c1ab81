//! A crash at every effect of `up`, `stop` and `down`: before it, done but not journalled, journalled.
//!
//! The engine, the plan, the journal and its files are the real ones. The world is in memory, outlives the crash, never
//! removes duplicates, and is inspected directly afterwards. A crash is the executor dropped where it stands, and
//! the state read again from its files.

mod harness;
mod head;
pub(crate) mod real;
mod world;

use std::collections::BTreeSet;

use gpucl::plan::{Action, Desired, HostAction, ResourceAction};

use harness::{Harness, Report, desired, desired_objects, desired_projects, desired_with_firewalls};
use world::{Bug, Phase};

/// The stories in which every effect is crashed at: where they begin, and what they go to.
fn stories() -> Vec<(&'static str, Option<Desired>, Goalish)> {
    vec![
        ("up from nothing", None, Goalish::Up(desired(2, 1, "a"))),
        ("one more worker", Some(desired(2, 1, "a")), Goalish::Up(desired(3, 1, "a"))),
        ("another host, other workers, one fewer", Some(desired(3, 1, "a")), Goalish::Up(desired(2, 2, "b"))),
        ("stop", Some(desired(2, 1, "a")), Goalish::Stop),
        ("down", Some(desired(2, 1, "a")), Goalish::Down),
        ("up of projects on two hosts", None, Goalish::Up(desired_projects("a"))),
        ("projects on other hosts", Some(desired_projects("a")), Goalish::Up(desired_projects("b"))),
        ("a host that was on its way", Some(desired(1, 1, "slow")), Goalish::Up(desired(1, 1, "slow"))),
        ("projects on hosts that are made", None, Goalish::Up(desired_with_firewalls("a"))),
        ("the same on other hosts", Some(desired_with_firewalls("a")), Goalish::Up(desired_with_firewalls("b"))),
        ("objects that are changed in place", Some(desired_objects("a")), Goalish::Up(desired_objects("b"))),
        ("stop of projects", Some(desired_projects("a")), Goalish::Stop),
        ("down of projects", Some(desired_projects("a")), Goalish::Down),
    ]
}

use harness::Goalish;

/// Crashes at every point of every story, goes on in two ways, and says what was left or did not converge.
async fn every_point(bug: Bug) -> Report {
    let mut report = Report::default();
    for (story, before, goal) in stories() {
        let effects = Harness::new(bug).effects(before.as_ref(), &goal).await;
        for (index, kind) in effects.iter().enumerate() {
            for phase in [Phase::Before, Phase::Done, Phase::Journalled] {
                for then_down in [false, true] {
                    report.points += usize::from(!then_down);
                    report.kinds.insert(kind);
                    let mut harness = Harness::new(bug);
                    let what = format!(
                        "{story}: {kind} #{}, crash {phase:?}, then {}",
                        index + 1,
                        if then_down { "down" } else { "again" }
                    );
                    if let Err(why) = harness.crash_and_go_on(before.as_ref(), &goal, index, phase, then_down).await {
                        report.failures.push((phase, format!("{what}: {why}")));
                    }
                }
            }
        }
    }
    report
}

/// Every kind of operation that a plan can hold. A new kind that no story reaches fails the test.
fn all_kinds() -> BTreeSet<&'static str> {
    // The match makes the compiler say that a kind is missing here.
    let name = |action: &Action| match action {
        Action::Resource(ResourceAction::Acquire { .. }) => "acquire",
        Action::Resource(ResourceAction::Await { .. }) => "wait for",
        Action::Resource(ResourceAction::Update { .. }) => "update",
        Action::Resource(ResourceAction::Release { .. }) => "release",
        Action::Host(HostAction::Prepare { .. }) => "prepare",
        Action::Host(HostAction::SetFirewall { .. }) => "set firewall",
        Action::Host(HostAction::Fill { .. }) => "fill data",
        Action::Host(HostAction::Deploy { .. }) => "deploy",
        Action::Host(HostAction::StopProject { .. }) => "stop project",
        Action::Host(HostAction::Clean { .. }) => "clean host",
    };
    let clean = Action::Host(HostAction::Clean { host: gpucl::name::Key::host(0) });
    assert_eq!(name(&clean), clean.name());
    [
        "acquire",
        "wait for",
        "update",
        "prepare",
        "set firewall",
        "fill data",
        "deploy",
        "stop project",
        "clean host",
        "release",
    ]
    .into()
}

#[tokio::test]
async fn a_crash_at_any_effect_leaks_nothing_and_can_be_resumed() {
    let report = every_point(Bug::None).await;
    assert_eq!(report.kinds, all_kinds(), "every kind of operation was crashed at");
    assert!(report.failures.is_empty(), "{} failures, the first: {:#?}", report.failures.len(), &report.failures[..1]);
    println!("crash points tried: {}, each gone on from in two ways; leaks: {}", report.points, report.failures.len());
}

#[tokio::test]
async fn a_deliberate_bug_of_each_class_is_caught() {
    for (bug, phase) in [
        (Bug::BelievesWhatWasOnlyIntended, Phase::Before),
        (Bug::SeesOnlyWhatTheJournalKnows, Phase::Done),
        (Bug::LosesIds, Phase::Journalled),
    ] {
        let report = every_point(bug).await;
        assert!(
            report.failures.iter().any(|(at, _)| *at == phase),
            "{bug:?} was not caught at {phase:?}; failures: {:?}",
            report.failures.iter().take(3).collect::<Vec<_>>()
        );
    }
}

/// Two crashes in a row: the second hits the run that goes on from the first.
#[tokio::test]
async fn a_crash_while_resuming_from_a_crash_leaks_nothing() {
    let goal = Goalish::Up(desired(2, 1, "a"));
    let effects = Harness::new(Bug::None).effects(None, &goal).await.len();
    for first in 0..effects {
        for second in 0..effects {
            let mut harness = Harness::new(Bug::None);
            harness.crash(&goal, first, Phase::Done).await;
            harness.crash(&goal, second, Phase::Done).await;
            harness.converges(&goal).await.unwrap();
            harness.ends().await.unwrap();
        }
    }
}

/// Two of everything, as two runs on two machines could have made them: one of each stays, and `down` leaves none.
#[tokio::test]
async fn duplicates_are_found_and_removed() {
    let goal = Goalish::Up(desired(2, 1, "a"));
    for (bug, caught) in [(Bug::None, false), (Bug::HidesDuplicates, true)] {
        let mut harness = Harness::new(bug);
        harness.converges(&goal).await.unwrap();
        harness.world.machine().double();
        let result = async {
            harness.converges(&goal).await?;
            harness.ends().await
        };
        assert_eq!(result.await.is_err(), caught, "{bug:?}");
    }
}

/// Something that appears after the crash, late, is found and not made twice.
#[tokio::test]
async fn an_effect_that_appears_late_is_waited_for() {
    let goal = Goalish::Up(desired(1, 1, "a"));
    let mut harness = Harness::new(Bug::None);
    harness.world.machine().late = Some(std::time::Duration::from_millis(400));
    harness.crash(&goal, 0, Phase::Done).await;
    harness.converges(&goal).await.unwrap();
    assert_eq!(harness.world.machine().resources.len(), 1, "the late host was adopted, no second one acquired");
}
