//! The lease commands against an in-memory site.

use std::sync::Arc;

use clap::Parser as _;

use super::*;
use crate::cli::args::{Arguments, Command as Verb};
use crate::cluster::lease::tests::memory::{Fault, Memory, settings_in, source};
use crate::error::Result;
use crate::name::{Key, Scope};
use crate::provider::{EndAsk, LeaseAsk, Provider, StartAsk};
use crate::state::{HostNotes, ItemKind, LeaseSource, Notes, Record, Store};

fn parse(line: &str) -> Args {
    let words = shlex(line);
    match Arguments::try_parse_from(std::iter::once("gpucl".to_owned()).chain(words)).unwrap().command {
        Verb::Lease(args) => *args,
        other => panic!("{other:?}"),
    }
}

/// Splits a line into words; text in quotes is one word.
fn shlex(line: &str) -> Vec<String> {
    let pieces = line.split('"').enumerate();
    pieces
        .flat_map(|(number, piece)| match number % 2 {
            0 => piece.split_whitespace().map(str::to_owned).collect::<Vec<_>>(),
            _ => vec![piece.to_owned()],
        })
        .collect()
}

fn asked(line: &str) -> Result<LeaseAsk> {
    let args = parse(line).ask;
    args.check()?;
    let zone = TimeZone::posix("CST6CDT,M3.2.0,M11.1.0").unwrap();
    args.lease_ask("2026-11-21T16:30:00Z".parse().unwrap(), &zone)
}

struct Bench {
    _root: tempfile::TempDir,
    app: App,
    settings: Settings,
    memory: Memory,
}

impl Bench {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let settings = settings_in(root.path());
        let app = App::for_test(settings.paths.clone());
        Self { _root: root, app, settings, memory: Memory::with(&["liqid01", "liqid02"]) }
    }

    async fn run(&self, line: &str) -> Result<u8> {
        let memory = self.memory.clone();
        let reopen = move |_: &LeaseSource| -> Result<Box<dyn Provider>> { Ok(Box::new(memory.clone())) };
        let command = LeaseCommand {
            app: &self.app,
            settings: self.settings.clone(),
            source: source(),
            sites: Sites::opened(vec![OpenSite { source: source(), provider: Arc::new(self.memory.clone()) }]),
            reopen: &reopen,
            zone: TimeZone::UTC,
            flags: String::new(),
        };
        command.run(parse(line)).await
    }
}

#[test]
fn arguments_become_a_request() {
    let ask = asked("lease --node liqid01 --node liqid02 --hours 3").unwrap();
    assert_eq!(ask.hosts.nodes, ["liqid01", "liqid02"]);
    assert_eq!((ask.start, ask.end), (StartAsk::Next, EndAsk::After(jiff::SignedDuration::from_hours(3))));
    let ask =
        asked("lease --type compute_liqid --count 2 --start \"2026-11-22 14:00\" --until 16:50 --shorten").unwrap();
    assert_eq!((ask.count, ask.shorten), (2, true));
    assert_eq!(ask.start, StartAsk::At("2026-11-22T20:00:00Z".parse().unwrap()));
    assert_eq!(ask.end, EndAsk::At("2026-11-22T22:50:00Z".parse().unwrap()), "of the day of its start");
    assert_eq!(asked("lease --gpu a100 --gpus 2 --hours 90m --start now").unwrap().start, StartAsk::Now);
    let message = |line: &str| asked(line).unwrap_err().to_string();
    assert!(message("lease --hours 3").contains("no host was named"));
    assert!(message("lease --node a").contains("neither a length nor an end"));
    assert!(message("lease --node a --hours soon").contains("is not a duration"));
    assert!(message("lease --node a --hours 1 --start \"2026-11-01 01:30\"").contains("occurs twice"));
    for wrong in
        ["lease --node a --count 2 --hours 1", "lease --node a --hours 1 --until 14:00", "lease extend x", "lease show"]
    {
        let words = std::iter::once("gpucl".to_owned()).chain(shlex(wrong));
        assert!(Arguments::try_parse_from(words).is_err(), "{wrong}");
    }
    assert!(parse("lease --node a list").ask.none_before("list").is_err());
    assert!(parse("lease -y list").ask.none_before("list").is_ok());
    assert!(matches!(parse("lease list --all").command, Some(Command::List(_))));
    assert!(matches!(parse("lease -y delete x").command, Some(Command::Delete(_))));
}

#[tokio::test]
async fn a_lease_from_creation_to_deletion() {
    let bench = Bench::new();
    assert_eq!(bench.run("lease --node liqid01 --hours 3 --dry-run").await.unwrap(), 0);
    assert!(bench.memory.leases().is_empty());
    assert_eq!(bench.run("lease --node liqid01 --hours 3").await.unwrap(), 0);
    let lease = bench.memory.leases()[0].clone();
    assert_eq!(when::between(lease.start, lease.end), jiff::SignedDuration::from_hours(3));
    for line in
        ["lease list", "lease list --all", &format!("lease show {}", lease.id), &format!("lease wait {}", lease.name)]
    {
        assert_eq!(bench.run(line).await.unwrap(), 0, "{line}");
    }
    bench.run(&format!("lease extend {} --hours 1", lease.id)).await.unwrap();
    assert_eq!(when::between(lease.end, bench.memory.leases()[0].end), jiff::SignedDuration::from_hours(1));
    // Another one beside it is not made.
    let error = bench.run("lease --node liqid01 --hours 3").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Capacity);
    assert_eq!(bench.memory.leases().len(), 1);
    bench.run(&format!("lease delete {}", lease.name)).await.unwrap();
    assert!(bench.memory.leases().is_empty());
    let error = bench.run("lease show nothing").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

/// `status` and what counts from the end see it at once.
#[tokio::test]
async fn an_extended_lease_moves_the_end_of_the_cluster_that_uses_it() {
    let bench = Bench::new();
    bench.run("lease --node liqid01 --hours 3").await.unwrap();
    let lease = bench.memory.leases()[0].clone();
    let paths = &bench.settings.paths;
    let record = |cluster: &str, id: &str| {
        let scope = Scope { owner: "abcd1234".parse().unwrap(), cluster: cluster.parse().unwrap() };
        let mut store = Store::create(paths, &scope, Timestamp::now()).unwrap();
        let (lease_key, host): (Key, Key) = ("lease".parse().unwrap(), Key::host(0));
        let notes = HostNotes { until: Some(lease.end), ..HostNotes::default() };
        for (key, kind, id) in [(&lease_key, "lease", id), (&host, "host", "1")] {
            let kind = ItemKind::Resource(kind.to_owned());
            store.write(Record::Requested { key: key.clone(), kind, digest: "1".to_owned() }).unwrap();
            store.write(Record::Exists { key: key.clone(), id: id.to_owned() }).unwrap();
        }
        store.write(Record::Noted { key: host, notes: Notes::Host(Box::new(notes)) }).unwrap();
        store.compact().unwrap();
    };
    record("uses", &lease.id);
    record("other", "another-lease");
    bench.run(&format!("lease extend {} --hours 1", lease.id)).await.unwrap();
    let end = |cluster: &str| Store::open(paths, &cluster.parse().unwrap()).unwrap().unwrap().state().ends();
    assert_eq!(end("uses"), Some(bench.memory.leases()[0].end));
    assert_eq!(end("other"), Some(lease.end));
}

#[tokio::test]
async fn the_same_command_after_a_lost_answer_returns_the_existing_lease() {
    let bench = Bench::new();
    bench.memory.fails(Fault::CutAfter);
    let error = bench.run("lease --node liqid01 --hours 3").await.unwrap_err();
    assert!(error.hints().iter().any(|hint| hint.starts_with("gpucl lease list")), "{error}");
    assert_eq!(bench.run("lease --node liqid01 --hours 3").await.unwrap(), 0);
    assert_eq!(bench.memory.leases().len(), 1);
    // Other arguments request another lease.
    bench.memory.fails(Fault::CutAfter);
    bench.run("lease --node liqid02 --hours 3 --start now").await.unwrap_err();
    bench.run("lease --node liqid02 --hours 2").await.unwrap_err();
    assert_eq!(bench.memory.leases().len(), 2);
    assert_eq!(bench.memory.0.lock().unwrap().posts, 2);
}

#[tokio::test]
async fn leases_of_others_are_left_alone() {
    let bench = Bench::new();
    bench.memory.book("bob", "liqid01", 0, 3, false, None);
    bench.memory.book("carol", "liqid02", 1, 3, false, Some("gpucl-zzzz9999-lease-labcdef"));
    for line in ["lease delete bob", "lease extend bob --hours 1", "lease delete carol"] {
        let error = bench.run(line).await.unwrap_err();
        assert!(error.to_string().contains("another user of the project made it"), "{error}");
        assert_eq!(error.kind(), ErrorKind::Usage);
    }
    assert!(bench.run("lease delete carol").await.unwrap_err().to_string().contains("owner zzzz9999"));
    assert_eq!(bench.memory.leases().len(), 2);
}

#[tokio::test]
async fn the_lease_of_a_cluster_goes_with_the_cluster() {
    let bench = Bench::new();
    bench.memory.book("demo", "liqid01", 0, 3, true, Some("gpucl-abcd1234-demo-lease0"));
    bench.memory.book("web", "liqid02", 0, 3, true, None);
    let scope = bench.settings.scope(&"demo".parse().unwrap());
    let store = crate::state::Store::create(&bench.settings.paths, &scope, Timestamp::now()).unwrap();
    let error = bench.run("lease delete demo").await.unwrap_err();
    assert_eq!(error.hints(), ["gpucl down -c demo   # removes both"]);
    // Without state of the cluster nothing prevents the deletion, and a lease from the web form is ours as well.
    store.remove().unwrap();
    bench.run("lease delete demo").await.unwrap();
    bench.run("lease delete web").await.unwrap();
    assert!(bench.memory.leases().is_empty());
}
