//! The earliest end decides, and hosts are given each end once.

use super::*;

fn end(text: &str, why: Cause) -> Option<End> {
    Some(End { at: format!("2026-11-21T{text}Z").parse().unwrap(), why })
}

#[test]
fn each_end_has_a_revision_of_its_own_above_what_a_host_knows() {
    let folder = tempfile::tempdir().unwrap();
    let first = GivenEnd::next(folder.path(), end("16:50:00", Cause::Lease), 0).unwrap();
    assert_eq!((first.revision, first.why.as_str()), (1, "the lease ends"));
    assert_eq!(GivenEnd::next(folder.path(), None, 0).unwrap().revision, 2);
    // A host knows a higher one: the record of an earlier cluster folder was lost.
    let third = GivenEnd::next(folder.path(), end("16:50:00", Cause::Lease), 7).unwrap();
    assert_eq!(third.revision, 8);
    assert_eq!(GivenEnd::last(folder.path()), Some(third));
}

/// The agent's look, `keep` and `up` may give hosts an end at the same time.
#[test]
fn no_two_processes_ever_give_the_same_revision() {
    let folder = tempfile::tempdir().unwrap();
    let give = || (0..25).map(|_| GivenEnd::next(folder.path(), None, 0).unwrap().revision).collect::<Vec<_>>();
    let mut all: Vec<u64> = std::thread::scope(|scope| {
        let givers: Vec<_> = (0..4).map(|_| scope.spawn(give)).collect();
        givers.into_iter().flat_map(|giver| giver.join().unwrap()).collect()
    });
    all.sort_unstable();
    assert_eq!(all, (1..=100).collect::<Vec<_>>());
}

#[test]
fn an_end_that_moved_is_given_again_and_an_estimate_of_cost_only_if_it_moved_much() {
    let folder = tempfile::tempdir().unwrap();
    let lease = GivenEnd::next(folder.path(), end("16:50:00", Cause::Lease), 0).unwrap();
    assert!(lease.is(end("16:50:00", Cause::Lease)));
    assert!(!lease.is(end("16:50:01", Cause::Lease)) && !lease.is(None));
    assert!(!lease.is(end("16:50:00", Cause::Deadline)), "what ends it is said by hosts too");
    let job = GivenEnd::next(folder.path(), end("16:50:00", Cause::WallClock), 0).unwrap();
    assert_eq!(job.at, end("16:49:40", Cause::WallClock).map(|end| end.at), "all programs of the job end at once then");
    assert!(job.is(end("16:50:00", Cause::WallClock)));
    let cost = GivenEnd::next(folder.path(), end("16:50:00", Cause::Cost), 0).unwrap();
    assert!(cost.is(end("16:50:10", Cause::Cost)) && !cost.is(end("16:51:00", Cause::Cost)));
}
