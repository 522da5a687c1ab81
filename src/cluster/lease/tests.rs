//! Standalone leases, at an in-memory provider that loses responses.

pub(crate) mod memory;

use jiff::SignedDuration;

use super::*;
use crate::util::when;
use memory::{Fault, Memory, settings_in, source};

fn three_hours(host: &str) -> LeaseAsk {
    LeaseAsk {
        hosts: HostFilter { nodes: vec![host.to_owned()], ..HostFilter::default() },
        count: 1,
        start: StartAsk::Next,
        end: EndAsk::After(SignedDuration::from_hours(3)),
        name: None,
        shorten: false,
    }
}

struct Bench {
    root: tempfile::TempDir,
    settings: Settings,
    memory: Memory,
}

impl Bench {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let settings = settings_in(root.path());
        Self { root, settings, memory: Memory::with(&["liqid01", "liqid02"]) }
    }

    async fn lease(&self, ask: &LeaseAsk) -> Result<String> {
        let proposal = self.memory.propose(&scope(&self.settings), &new_key()?, ask).await?;
        acquire(&self.settings, &source(), &self.memory, ask, &proposal).await
    }

    async fn recover(&self) -> Recovery {
        let memory = self.memory.clone();
        recover(&self.settings, &move |_| Ok(Box::new(memory.clone()))).await.unwrap()
    }

    fn items(&self) -> Vec<ItemState> {
        let store = Store::open(&self.settings.paths, &ClusterName::lease()).unwrap();
        store.map(|store| store.state().items.values().map(|item| item.state).collect()).unwrap_or_default()
    }

    /// Nothing is left on disk, not even the folder of a cluster.
    fn is_clean(&self) -> bool {
        !self.root.path().join("state/clusters").exists()
    }
}

#[tokio::test]
async fn a_lease_stays_in_the_journal_until_it_is_deleted() {
    let bench = Bench::new();
    let id = bench.lease(&three_hours("liqid01")).await.unwrap();
    assert_eq!(bench.items(), [ItemState::Ready]);
    let tag = bench.memory.leases()[0].tag.clone().unwrap();
    assert!(tag.cluster.is_reserved() && tag.key.as_str().len() == 7 && tag.key.as_str().starts_with('l'), "{tag}");
    assert!(Store::names(&bench.settings.paths).unwrap().is_empty(), "it is no cluster");
    let recovery = bench.recover().await;
    assert!(recovery.found.is_empty() && recovery.forgotten.is_empty());
    moved(&bench.settings, &id, Timestamp::MAX).await.unwrap();
    delete(&bench.settings, &bench.memory, &id).await.unwrap();
    assert!(bench.memory.leases().is_empty());
    assert!(bench.is_clean());
    // Also a lease that is not in the journal.
    bench.memory.book("web", "liqid01", 0, 3, true, None);
    delete(&bench.settings, &bench.memory, "id-0").await.unwrap();
    assert!(bench.memory.leases().is_empty() && bench.is_clean());
}

#[tokio::test]
async fn a_lease_whose_answer_was_lost_is_found_again() {
    for fault in [Fault::CutAfter, Fault::NotJournalled] {
        let bench = Bench::new();
        bench.memory.fails(fault);
        bench.lease(&three_hours("liqid01")).await.unwrap_err();
        assert_eq!(bench.items(), [ItemState::Requested]);
        let recovery = bench.recover().await;
        assert_eq!(recovery.found[0].id, "id-0");
        assert!(recovery.found[0].is(&source(), &three_hours("liqid01")));
        assert!(!recovery.found[0].is(&source(), &three_hours("liqid02")));
        assert_eq!(bench.items(), [ItemState::Ready]);
        assert!(bench.recover().await.found.is_empty(), "it is reported once");
        assert_eq!(bench.memory.0.lock().unwrap().posts, 1);
    }
}

#[tokio::test]
async fn a_call_that_never_arrived_is_forgotten() {
    let bench = Bench::new();
    bench.memory.fails(Fault::CutBefore);
    bench.lease(&three_hours("liqid01")).await.unwrap_err();
    assert_eq!(bench.items(), [ItemState::Requested]);
    assert_eq!(bench.recover().await.forgotten, ["me"]);
    assert!(bench.is_clean());
}

#[tokio::test]
async fn a_refused_lease_leaves_nothing() {
    let bench = Bench::new();
    bench.memory.fails(Fault::Refused);
    bench.lease(&three_hours("liqid01")).await.unwrap_err();
    assert!(bench.is_clean());
}

#[tokio::test]
async fn a_lease_whose_provider_cannot_be_queried_stays_open() {
    let bench = Bench::new();
    bench.memory.fails(Fault::CutAfter);
    bench.lease(&three_hours("liqid01")).await.unwrap_err();
    let closed = |source: &LeaseSource| -> Result<Box<dyn Provider>> {
        assert_eq!(source.place, "MEM", "the place is remembered");
        Err(Error::new(ErrorKind::Provider, "log in"))
    };
    let recovery = recover(&bench.settings, &closed).await.unwrap();
    assert_eq!(recovery.open.len(), 1);
    assert_eq!(bench.items(), [ItemState::Requested]);
    assert_eq!(bench.recover().await.found.len(), 1);
}

#[tokio::test]
async fn two_at_once_wait_for_each_other() {
    let bench = Bench::new();
    let (one, two) = (three_hours("liqid01"), three_hours("liqid02"));
    let (one, two) = tokio::join!(bench.lease(&one), bench.lease(&two));
    assert_ne!(one.unwrap(), two.unwrap());
    assert_eq!(bench.items(), [ItemState::Ready, ItemState::Ready]);
}

/// Killed after the response and before the report: the id is known, and the next command reports it.
#[tokio::test]
async fn an_unreported_id_is_reported_by_the_next_command() {
    let bench = Bench::new();
    let ask = three_hours("liqid01");
    let id = bench.lease(&ask).await.unwrap();
    let mut store = Store::open(&bench.settings.paths, &ClusterName::lease()).unwrap().unwrap();
    let key = store.state().items.keys().next().unwrap().clone();
    // As it stood before the last record.
    store.write(Record::Exists { key, id: id.clone() }).unwrap();
    drop(store);
    let recovery = bench.recover().await;
    assert_eq!(recovery.found[0].id, id);
    assert!(recovery.found[0].is(&source(), &ask));
}

#[tokio::test]
async fn a_lease_that_has_ended_is_forgotten() {
    let bench = Bench::new();
    let id = bench.lease(&three_hours("liqid01")).await.unwrap();
    moved(&bench.settings, &id, when::earlier(Timestamp::now(), SignedDuration::from_mins(1))).await.unwrap();
    bench.recover().await;
    assert!(bench.is_clean());
}

/// These digests are in journals: that of bd888d5, for the same request.
#[test]
fn the_digest_of_a_request_stays_what_it_was() {
    let source = LeaseSource { provider: "acme".to_owned(), settings: serde_json::json!({}), place: String::new() };
    let hosts = HostFilter { nodes: vec!["liqid01".to_owned()], gpu: Some("a100".to_owned()), ..HostFilter::default() };
    let end = EndAsk::After(SignedDuration::from_hours(3));
    let ask = LeaseAsk { hosts, count: 1, start: StartAsk::Next, end, name: None, shorten: false };
    let words = "LeaseAsk { hosts: HostFilter { nodes: [\"liqid01\"], kind: None, gpu: Some(\"a100\"), gpus: None }, \
                 count: 1, start: Next, end: After(3h), name: None, shorten: false }";
    assert_eq!(in_words(&ask), words);
    let at = "2026-11-29T08:00:00Z".parse().unwrap();
    let ask = LeaseAsk { start: StartAsk::At(at), end: EndAsk::At(at), name: Some("n".to_owned()), ..ask };
    assert_eq!(in_words(&ask), format!("{ask:?}"), "as bd888d5 made it");
    assert_ne!(digest_of(&source, &ask), digest_of(&source, &LeaseAsk { shorten: true, ..ask.clone() }));
}
