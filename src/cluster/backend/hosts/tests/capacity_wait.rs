//! A provider that has none, or not enough: hunted for, kept, given back.

use std::time::Duration;

use super::cloud::{BOOT, Cloud, POLL, REGIONS, SPACING};
use super::hosts::PREPARE;
use super::{HOUR, Home, spec};
use crate::error::ErrorKind;
use crate::name::Key;
use crate::state::ItemKind;

const GIVE_BACK: &str = "capacity: {partial: give_back}\n";

#[tokio::test(start_paused = true)]
async fn without_being_asked_to_nothing_is_waited_for() {
    let home = Home::new(Cloud::new(0));
    let went = home.up(&spec(1, ""), None).await;
    let error = went.result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Capacity);
    assert!(error.to_string().contains("south or west would do"), "{error}");
    assert_eq!((home.cloud.elapsed(), home.cloud.state().looks.len()), (Duration::ZERO, 1));
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
    let looks = home.cloud.state().looks.clone();
    assert!(looks.windows(2).take(looks.len() - 2).all(|two| two[1] - two[0] >= POLL), "{looks:?}");
    // What it waits for, what would do, how often, and until when; and not with each look.
    assert!(waited[0].contains("south or west would do") && waited[0].contains("again in 20s"), "{waited:?}");
    assert!(waited[0].contains(", until "), "{waited:?}");
    let told = waited.iter().filter(|what| what.contains("capacity")).count();
    assert_eq!(told, 5, "once in five minutes: {waited:?}");
}

/// The others of the cluster are in the first region, so that only there it is hunted for; what is there is prepared meanwhile.
#[tokio::test(start_paused = true)]
async fn three_of_four_are_prepared_while_the_fourth_is_hunted_for() {
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
    assert!(home.hosts.ran("deploy").iter().all(|ran| ran.from > fourth), "a worker needs to know them all");
    assert!(home.cloud.elapsed() < fourth + BOOT + PREPARE + Duration::from_secs(30));
    // While it is waited for, the provider is asked every 20 s, and by who works on hosts not once for each of them.
    let looks = home.cloud.state().looks.len();
    assert!((150..=185).contains(&looks), "{looks}");
    let observed = home.cloud.state().observed;
    assert!(observed < 100, "{observed}");
}

/// The time of what was hunted for counts from the call that made it.
#[tokio::test(start_paused = true)]
async fn a_hunt_leaves_one_item_in_the_journal() {
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
    assert!(text.contains("nothing came free until"), "{text}");
    assert!(
        text.contains("3 of 4 hosts are there and kept: host-0, host-1, host-2, which costs 3.87 USD an hour"),
        "{text}"
    );
    assert_eq!(home.cloud.elapsed(), HOUR);
    assert_eq!((home.cloud.hosts(), home.hosts.ran("prepare").len()), (3, 3));
    // What comes later is taken, and what is there is not made again.
    home.cloud.delivers(HOUR, REGIONS[0], 1);
    home.up(&loaded, None).await.result.unwrap();
    assert_eq!(home.cloud.hosts(), 4);
}

/// The order of the two is the other one: who waits is told by the command.
#[tokio::test(start_paused = true)]
async fn the_command_says_more_than_the_spec() {
    let home = Home::new(Cloud::new(0));
    let error = home.up(&spec(1, "capacity: {wait: 1h}\n"), Some(2 * HOUR)).await.result.unwrap_err();
    assert_eq!((error.kind(), home.cloud.elapsed()), (ErrorKind::Capacity, 2 * HOUR));
}

#[tokio::test(start_paused = true)]
async fn not_asked_to_wait_three_of_four_are_kept_or_given_back() {
    let home = Home::new(Cloud::new(3));
    let error = home.up(&spec(4, ""), None).await.result.unwrap_err();
    assert_eq!((error.kind(), home.cloud.hosts()), (ErrorKind::Capacity, 3));
    assert!(error.to_string().contains("3 of 4 hosts are there and kept"), "{error}");

    let home = Home::new(Cloud::new(3));
    let went = home.up(&spec(4, GIVE_BACK), None).await;
    let error = went.result.unwrap_err();
    assert_eq!((error.kind(), home.cloud.hosts()), (ErrorKind::Capacity, 0));
    assert!(error.to_string().contains("what was made was given back"), "{error}");
    assert!(error.to_string().contains("south or west would do"), "{error}");
    assert!(
        home.cloud.elapsed() < Duration::from_secs(60),
        "nothing of it was gone on with: {:?}",
        home.cloud.elapsed()
    );
    assert!(home.hosts.ran("prepare").is_empty());
    assert!(went.known.items.is_empty(), "{:?}", went.known.items);
}

#[tokio::test(start_paused = true)]
async fn given_back_all_are_hunted_for_and_come_together() {
    let home = Home::new(Cloud::new(3));
    home.cloud.state().has_rules = true;
    home.cloud.delivers(HOUR, REGIONS[1], 4);
    let went = home.up(&spec(4, GIVE_BACK), Some(6 * HOUR)).await;
    // The first region has three free again as soon as they were given back; this cloud does not take them back.
    went.result.unwrap();
    let state = home.cloud.state();
    assert_eq!(state.things.iter().filter(|thing| thing.region == REGIONS[1]).count(), 5, "{:?}", state.things);
    assert_eq!(state.things.len(), 5, "four hosts and their rules: {:?}", state.things);
}

#[tokio::test(start_paused = true)]
async fn what_runs_already_is_not_given_back() {
    let home = Home::new(Cloud::new(3));
    home.up(&spec(2, ""), None).await.result.unwrap();
    let error = home.up(&spec(4, GIVE_BACK), None).await.result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Capacity);
    let left: Vec<String> = home.cloud.state().things.iter().map(|thing| thing.tag.key.to_string()).collect();
    assert_eq!(left, ["host0", "host1"]);
}

/// The listing said that there is one; the launch says there is none: the next choice is another region, with rules of its own.
#[tokio::test(start_paused = true)]
async fn what_is_needed_for_another_region_is_made_there() {
    let home = Home::new(Cloud::new(0));
    home.cloud.state().has_rules = true;
    home.cloud.state().lies = 1;
    home.cloud.delivers(Duration::from_secs(100), REGIONS[1], 1);
    let went = home.up(&spec(1, ""), Some(HOUR)).await;
    went.result.unwrap();
    let state = home.cloud.state();
    let things: Vec<(&str, &str)> = state.things.iter().map(|thing| (thing.kind, thing.region.as_str())).collect();
    assert_eq!(things, [("rules", REGIONS[1]), ("instance", REGIONS[1])], "the rules of the first were given back");
    assert!(state.launches[0].2 <= Duration::from_secs(100) + 2 * POLL, "{:?}", state.launches);
}

#[tokio::test(start_paused = true)]
async fn an_unhealthy_host_is_made_once_more_and_not_twice() {
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

/// It costs money while another is hunted for: it is not left lying for hours.
#[tokio::test(start_paused = true)]
async fn an_unhealthy_host_does_not_wait_for_the_end_of_a_hunt() {
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

/// Nobody pays for three hosts for hours while the fourth cannot help.
#[tokio::test(start_paused = true)]
async fn a_failure_ends_the_hunt() {
    let home = Home::new(Cloud::new(3));
    home.hosts.fails(Key::host(1), "prepare");
    let error = home.up(&spec(4, ""), Some(6 * HOUR)).await.result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Host);
    assert!(error.to_string().contains("the disk is full"), "{error}");
    assert!(home.cloud.elapsed() < HOUR, "{:?}", home.cloud.elapsed());
}

#[tokio::test(start_paused = true)]
async fn ctrl_c_ends_a_hunt_at_once() {
    for stock in [0, 1] {
        let home = Home::new(Cloud::new(stock));
        let loaded = spec(2, "");
        let press = async {
            tokio::time::sleep(HOUR).await;
            home.cancel.0.press();
        };
        let (went, ()) = tokio::join!(home.up(&loaded, Some(6 * HOUR)), press);
        assert_eq!(went.result.unwrap_err().kind(), ErrorKind::Cancelled, "{stock}");
        assert_eq!((home.cloud.elapsed(), home.cloud.hosts()), (HOUR, stock));
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_pass_ends_a_hunt() {
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

/// Somebody terminates it behind our back: while it is prepared, and after.
#[tokio::test(start_paused = true)]
async fn a_host_that_vanishes_is_told_and_made_anew_by_the_next_up() {
    let home = Home::new(Cloud::new(9));
    let loaded = spec(2, "");
    let terminate = async {
        tokio::time::sleep(SPACING + BOOT + Duration::from_secs(60)).await;
        home.cloud.state().things.retain(|thing| thing.tag.key != Key::host(1));
    };
    let (went, ()) = tokio::join!(home.up(&loaded, None), terminate);
    let error = went.result.unwrap_err();
    assert!(error.to_string().contains("its provider has it no more"), "{error}");
    home.up(&loaded, None).await.result.unwrap();
    assert_eq!((home.cloud.hosts(), home.cloud.state().launches.len()), (2, 3));
    // What the first told is not what the second is: it is looked at, and the other host lets the new one in.
    let firewalls = home.hosts.ran("firewall");
    assert!(firewalls.iter().any(|ran| ran.host == Key::host(0) && ran.program.contains("10.0.0.3")), "{firewalls:?}");

    home.cloud.state().things.retain(|thing| thing.tag.key != Key::host(0));
    home.up(&loaded, None).await.result.unwrap();
    assert_eq!((home.cloud.hosts(), home.cloud.state().launches.len()), (2, 4));
}

/// A refusal leaves nothing that would have to be looked for.
#[tokio::test(start_paused = true)]
async fn what_was_refused_is_not_in_the_journal() {
    let home = Home::new(Cloud::new(0));
    home.cloud.state().lies = 1;
    let went = home.up(&spec(1, ""), None).await;
    assert_eq!(went.result.unwrap_err().kind(), ErrorKind::Capacity);
    assert!(went.known.items.is_empty(), "{:?}", went.known.items);
    assert_eq!(home.cloud.state().refused, 1);
}
