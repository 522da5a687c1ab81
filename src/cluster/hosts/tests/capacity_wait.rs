//! A provider without enough capacity: the capacity wait, and what is kept or released.

use std::time::Duration;

use super::cloud::{BOOT, Cloud, POLL, REGIONS, SPACING};
use super::hosts::PREPARE;
use super::{HOUR, Home, spec};
use crate::engine::By;
use crate::error::ErrorKind;
use crate::name::Key;
use crate::state::ItemKind;

const GIVE_BACK: &str = "capacity: {partial: give_back}\n";

#[tokio::test(start_paused = true)]
async fn there_is_no_capacity_wait_unless_requested() {
    let home = Home::new(Cloud::new(0));
    let went = home.up(&spec(1, ""), None).await;
    let error = went.result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Capacity);
    assert!(error.to_string().contains("south or west would do"), "{error}");
    assert_eq!((home.cloud.elapsed(), home.cloud.state().queries.len()), (Duration::ZERO, 1));
}

#[tokio::test(start_paused = true)]
async fn the_second_choice_is_taken_within_two_polls() {
    let home = Home::new(Cloud::new(0));
    let comes = Duration::from_secs(1234);
    home.cloud.delivers(comes, REGIONS[1], 1);
    let went = home.up(&spec(1, ""), Some(6 * HOUR)).await;
    let waited = went.waited();
    went.result.unwrap();
    let launches = home.cloud.state().launches.clone();
    assert_eq!(launches.len(), 1);
    let (_, region, at) = &launches[0];
    assert_eq!(region, REGIONS[1]);
    assert!((comes..=comes + 2 * POLL).contains(at), "{at:?}");
    let queries = home.cloud.state().queries.clone();
    assert!(queries.windows(2).take(queries.len() - 2).all(|two| two[1] - two[0] >= POLL), "{queries:?}");
    // The report says what is waited for, the alternatives, the interval and the end; it is not repeated at each poll.
    assert!(waited[0].contains("south or west would do") && waited[0].contains("every 20s"), "{waited:?}");
    assert!(waited[0].contains(" until "), "{waited:?}");
    let reports = waited.iter().filter(|what| what.contains("capacity")).count();
    assert_eq!(reports, 5, "once in five minutes: {waited:?}");
}

/// The other hosts are in the first region, so that the capacity wait is for that region; they are prepared meanwhile.
#[tokio::test(start_paused = true)]
async fn three_of_four_are_prepared_during_the_capacity_wait_for_the_fourth() {
    let home = Home::new(Cloud::new(3));
    home.cloud.delivers(Duration::from_secs(60), REGIONS[1], 9);
    home.cloud.delivers(HOUR, REGIONS[0], 1);
    let went = home.up(&spec(4, ""), Some(6 * HOUR)).await;
    went.result.unwrap();
    let launches = home.cloud.state().launches.clone();
    assert!(launches.iter().all(|(_, region, _)| region == REGIONS[0]), "{launches:?}");
    let fourth = launches[3].2;
    assert!((HOUR..=HOUR + 2 * POLL + SPACING).contains(&fourth), "{fourth:?}");
    let prepared = home.hosts.ran("prepare");
    assert_eq!(prepared.iter().filter(|ran| ran.to < HOUR).count(), 3, "{prepared:?}");
    assert!(home.hosts.ran("deploy").iter().all(|ran| ran.from > fourth), "a worker needs the addresses of all hosts");
    assert!(home.cloud.elapsed() < fourth + BOOT + PREPARE + Duration::from_secs(30));
    // The provider is polled every 20 s for capacity, and not once per host for the others.
    let queries = home.cloud.state().queries.len();
    assert!((150..=185).contains(&queries), "{queries}");
    let observed = home.cloud.state().observed;
    assert!(observed < 100, "{observed}");
}

/// The cost counts from the call that succeeded, not from the beginning of the wait.
#[tokio::test(start_paused = true)]
async fn a_capacity_wait_leaves_one_item_in_the_journal() {
    let home = Home::new(Cloud::new(0));
    home.cloud.delivers(HOUR, REGIONS[0], 1);
    let went = home.up(&spec(1, ""), Some(6 * HOUR)).await;
    went.result.unwrap();
    let item = &went.known.items[&Key::host(0)];
    assert_eq!((item.kind.clone(), item.id.as_deref()), (ItemKind::Resource("instance".to_owned()), Some("i-1")));
    assert_eq!(item.priced.as_ref().map(|priced| priced.price.to_string()).as_deref(), Some("1.29 USD"));
    assert_eq!(home.cloud.hosts(), 1);
}

#[tokio::test(start_paused = true)]
async fn at_the_limit_it_ends_and_says_what_is_kept_and_what_that_costs() {
    let home = Home::new(Cloud::new(3));
    let loaded = spec(4, "capacity: {wait: 1h}\n");
    let error = home.up(&loaded, None).await.result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Capacity);
    let text = error.to_string();
    assert!(text.contains("nothing became available until"), "{text}");
    assert!(
        text.contains("3 of 4 hosts exist and are kept: host-0, host-1, host-2, which costs 3.87 USD an hour"),
        "{text}"
    );
    assert_eq!(home.cloud.elapsed(), HOUR);
    assert_eq!((home.cloud.hosts(), home.hosts.ran("prepare").len()), (3, 3));
    // A later `up` takes new capacity, and does not recreate existing hosts.
    home.cloud.delivers(HOUR, REGIONS[0], 1);
    home.up(&loaded, None).await.result.unwrap();
    assert_eq!(home.cloud.hosts(), 4);
}

/// The timeout of the command overrides that of the spec.
#[tokio::test(start_paused = true)]
async fn the_command_overrides_the_spec() {
    let home = Home::new(Cloud::new(0));
    let error = home.up(&spec(1, "capacity: {wait: 1h}\n"), Some(2 * HOUR)).await.result.unwrap_err();
    assert_eq!((error.kind(), home.cloud.elapsed()), (ErrorKind::Capacity, 2 * HOUR));
}

#[tokio::test(start_paused = true)]
async fn without_a_wait_three_of_four_are_kept_or_released() {
    let home = Home::new(Cloud::new(3));
    let error = home.up(&spec(4, ""), None).await.result.unwrap_err();
    assert_eq!((error.kind(), home.cloud.hosts()), (ErrorKind::Capacity, 3));
    assert!(error.to_string().contains("3 of 4 hosts exist and are kept"), "{error}");

    let home = Home::new(Cloud::new(3));
    let went = home.up(&spec(4, GIVE_BACK), None).await;
    let error = went.result.unwrap_err();
    assert_eq!((error.kind(), home.cloud.hosts()), (ErrorKind::Capacity, 0));
    assert!(error.to_string().contains("what was created was released"), "{error}");
    assert!(error.to_string().contains("south or west would do"), "{error}");
    assert!(home.cloud.elapsed() < Duration::from_secs(60), "the plan was abandoned: {:?}", home.cloud.elapsed());
    assert!(home.hosts.ran("prepare").is_empty());
    assert!(went.known.items.is_empty(), "{:?}", went.known.items);
}

#[tokio::test(start_paused = true)]
async fn after_a_release_all_hosts_are_waited_for_together() {
    let home = Home::new(Cloud::new(3));
    home.cloud.state().has_rules = true;
    home.cloud.delivers(HOUR, REGIONS[1], 4);
    let went = home.up(&spec(4, GIVE_BACK), Some(6 * HOUR)).await;
    // Released hosts do not become available again in this cloud.
    went.result.unwrap();
    let state = home.cloud.state();
    assert_eq!(state.things.iter().filter(|thing| thing.region == REGIONS[1]).count(), 5, "{:?}", state.things);
    assert_eq!(state.things.len(), 5, "four hosts and their rules: {:?}", state.things);
}

#[tokio::test(start_paused = true)]
async fn hosts_that_run_already_are_not_released() {
    let home = Home::new(Cloud::new(3));
    home.up(&spec(2, ""), None).await.result.unwrap();
    let error = home.up(&spec(4, GIVE_BACK), None).await.result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Capacity);
    let left: Vec<String> = home.cloud.state().things.iter().map(|thing| thing.tag.key.to_string()).collect();
    assert_eq!(left, ["host0", "host1"]);
}

/// A host is listed but its launch is refused: the next choice is another region, with its own rules.
#[tokio::test(start_paused = true)]
async fn the_rules_for_another_region_are_created_there() {
    let home = Home::new(Cloud::new(0));
    home.cloud.state().has_rules = true;
    home.cloud.state().lies = 1;
    home.cloud.delivers(Duration::from_secs(100), REGIONS[1], 1);
    let went = home.up(&spec(1, ""), Some(HOUR)).await;
    went.result.unwrap();
    let state = home.cloud.state();
    let things: Vec<(&str, &str)> = state.things.iter().map(|thing| (thing.kind, thing.region.as_str())).collect();
    assert_eq!(things, [("rules", REGIONS[1]), ("instance", REGIONS[1])], "the rules of the first were released");
    assert!(state.launches[0].2 <= Duration::from_secs(100) + 2 * POLL, "{:?}", state.launches);
}

#[tokio::test(start_paused = true)]
async fn an_unhealthy_host_is_recreated_once() {
    let home = Home::new(Cloud::new(9));
    home.cloud.state().ills = 1;
    home.up(&spec(2, ""), None).await.result.unwrap();
    assert_eq!((home.cloud.hosts(), home.cloud.state().launches.len()), (2, 3));

    let home = Home::new(Cloud::new(9));
    home.cloud.state().ills = 2;
    let error = home.up(&spec(1, ""), None).await.result.unwrap_err();
    assert!(error.to_string().contains("it is unhealthy"), "{error}");
    assert_eq!(home.cloud.state().launches.len(), 2);
}

/// An unhealthy host costs money: a capacity wait for another must not keep it for hours.
#[tokio::test(start_paused = true)]
async fn an_unhealthy_host_is_recreated_during_a_capacity_wait() {
    let home = Home::new(Cloud::new(2));
    home.cloud.state().ills = 1;
    home.cloud.delivers(Duration::from_secs(300), REGIONS[0], 1);
    home.cloud.delivers(HOUR, REGIONS[0], 1);
    home.up(&spec(3, ""), Some(6 * HOUR)).await.result.unwrap();
    let launches = home.cloud.state().launches.clone();
    let keys: Vec<&str> = launches.iter().map(|(key, ..)| key.as_str()).collect();
    assert_eq!(keys.iter().filter(|key| **key == "host0").count() + keys.len(), 4 + 2, "{launches:?}");
    assert!(launches[2].2 < Duration::from_secs(700), "{launches:?}");
}

/// Waiting on would cost hours of three hosts in a cluster that has failed.
#[tokio::test(start_paused = true)]
async fn a_failure_ends_the_capacity_wait() {
    let home = Home::new(Cloud::new(3));
    home.hosts.fails(Key::host(1), "prepare");
    let error = home.up(&spec(4, ""), Some(6 * HOUR)).await.result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Host);
    assert!(error.to_string().contains("the disk is full"), "{error}");
    assert!(home.cloud.elapsed() < HOUR, "{:?}", home.cloud.elapsed());
}

#[tokio::test(start_paused = true)]
async fn ctrl_c_ends_a_capacity_wait_at_once() {
    for stock in [0, 1] {
        let home = Home::new(Cloud::new(stock));
        let loaded = spec(2, "");
        let press = async {
            tokio::time::sleep(HOUR).await;
            home.cancel.0.press(By::CtrlC);
        };
        let (went, ()) = tokio::join!(home.up(&loaded, Some(6 * HOUR)), press);
        assert_eq!(went.result.unwrap_err().kind(), ErrorKind::Cancelled, "{stock}");
        assert_eq!((home.cloud.elapsed(), home.cloud.hosts()), (HOUR, stock));
    }
}

#[tokio::test(start_paused = true)]
async fn a_permanent_error_ends_a_capacity_wait() {
    let home = Home::new(Cloud::new(0));
    let revoke = async {
        tokio::time::sleep(Duration::from_secs(90)).await;
        home.cloud.state().kept_out = true;
    };
    let loaded = spec(1, "");
    let (went, ()) = tokio::join!(home.up(&loaded, Some(6 * HOUR)), revoke);
    let error = went.result.unwrap_err();
    assert!(error.to_string().contains("revoked"), "{error}");
    assert!(home.cloud.elapsed() < Duration::from_secs(120));
}

/// Someone else terminates a host: during its preparation, and afterwards.
#[tokio::test(start_paused = true)]
async fn a_host_that_vanishes_is_reported_and_recreated_by_the_next_up() {
    let home = Home::new(Cloud::new(9));
    let loaded = spec(2, "");
    let terminate = async {
        tokio::time::sleep(SPACING + BOOT + Duration::from_secs(60)).await;
        home.cloud.state().things.retain(|thing| thing.tag.key != Key::host(1));
    };
    let (went, ()) = tokio::join!(home.up(&loaded, None), terminate);
    let error = went.result.unwrap_err();
    assert!(error.to_string().contains("its provider no longer has it"), "{error}");
    home.up(&loaded, None).await.result.unwrap();
    assert_eq!((home.cloud.hosts(), home.cloud.state().launches.len()), (2, 3));
    // The facts of the old host are discarded, and the other host's firewall lets the new one in.
    let firewalls = home.hosts.ran("firewall");
    assert!(firewalls.iter().any(|ran| ran.host == Key::host(0) && ran.program.contains("10.0.0.3")), "{firewalls:?}");

    home.cloud.state().things.retain(|thing| thing.tag.key != Key::host(0));
    home.up(&loaded, None).await.result.unwrap();
    assert_eq!((home.cloud.hosts(), home.cloud.state().launches.len()), (2, 4));
}

/// A refusal leaves nothing to recover.
#[tokio::test(start_paused = true)]
async fn a_refused_resource_is_not_in_the_journal() {
    let home = Home::new(Cloud::new(0));
    home.cloud.state().lies = 1;
    let went = home.up(&spec(1, ""), None).await;
    assert_eq!(went.result.unwrap_err().kind(), ErrorKind::Capacity);
    assert!(went.known.items.is_empty(), "{:?}", went.known.items);
    assert_eq!(home.cloud.state().refused, 1);
}
