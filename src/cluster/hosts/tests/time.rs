//! How long `up` takes: no more than the provider's pace, a boot and a preparation.

use std::collections::BTreeMap;
use std::time::Duration;

use super::cloud::{BOOT, Cloud, SPACING};
use super::hosts::{DEPLOY, FIREWALL, PREPARE};
use super::{Home, spec};
use crate::name::Key;

/// A launch waits for no preparation, and a preparation only for the launch of its own host.
#[tokio::test(start_paused = true)]
async fn each_host_goes_its_own_way_and_all_take_as_long_as_the_last() {
    for count in [1_u32, 4, 16] {
        let home = Home::new(Cloud::new(count as usize));
        let went = home.up(&spec(count as usize, ""), None).await;
        went.result.unwrap();
        let took = home.cloud.elapsed();
        let least = SPACING * (count - 1) + BOOT + PREPARE;
        let ratio = took.as_secs_f64() / least.as_secs_f64();
        assert!((1.0..1.05).contains(&ratio), "{count} hosts took {took:?}, {least:?} is what it takes");

        let launches = home.cloud.state().launches.clone();
        let at: Vec<Duration> = launches.iter().map(|(_, _, at)| *at).collect();
        assert!(at.windows(2).all(|two| two[1] - two[0] == SPACING), "launches wait for the pace alone: {at:?}");
        let launched: BTreeMap<Key, Duration> = launches.into_iter().map(|(key, _, at)| (key, at)).collect();
        let prepared = home.hosts.ran("prepare");
        assert_eq!(prepared.len(), count as usize);
        for ran in &prepared {
            assert_eq!(ran.from, launched[&ran.host] + BOOT, "{} was prepared as soon as it was there", ran.host);
        }
        if count > 1 {
            let last = *at.last().unwrap();
            assert!(prepared[0].from < last + BOOT, "the first was prepared before the last was there");
        }
    }
}

/// Ports are opened to the addresses of all others, and a new connection confirms that within the minute.
#[tokio::test(start_paused = true)]
async fn hosts_are_opened_to_each_other_once_all_of_them_are_there() {
    let home = Home::new(Cloud::new(3));
    home.up(&spec(3, ""), None).await.result.unwrap();
    let last = home.cloud.state().launches.last().unwrap().2 + BOOT;
    let firewalls = home.hosts.ran("firewall");
    assert_eq!(firewalls.len(), 3);
    for firewall in &firewalls {
        assert!(firewall.from >= last, "{firewall:?}");
        let own = firewall.host.as_str().trim_start_matches("host").parse::<usize>().unwrap() + 1;
        let others: Vec<String> =
            (1..=3).filter(|number| *number != own).map(|number| format!("10.0.0.{number}")).collect();
        assert!(firewall.program.contains(&others.join(" ")), "{} is open to {others:?}", firewall.host);
        let deploy = home.hosts.ran("deploy").into_iter().find(|ran| ran.host == firewall.host).unwrap();
        assert!(deploy.from - firewall.to < Duration::from_secs(30), "{firewall:?} {deploy:?}");
        assert!(deploy.connection > firewall.connection, "a new connection proves that it lets us in");
    }
    let sessions = ["-", "prepare", "firewall", "deploy"].map(|stage| home.hosts.ran(stage).len());
    // One inspection before the plan, and one after all hosts are there.
    assert_eq!(sessions, [6, 3, 3, 3]);
    assert!(FIREWALL + DEPLOY < PREPARE / 20, "they do not count");
}

/// A single host opens no ports.
#[tokio::test(start_paused = true)]
async fn a_single_host_gets_no_firewall() {
    let home = Home::new(Cloud::new(1));
    home.up(&spec(1, ""), None).await.result.unwrap();
    assert!(home.hosts.ran("firewall").is_empty());
    assert_eq!(home.hosts.ran("deploy").len(), 1);
}

/// A host that never answers is waited for once, not once for each of the others.
#[tokio::test(start_paused = true)]
async fn a_silent_host_is_waited_for_once() {
    let home = Home::new(Cloud::new(4));
    home.hosts.fails(Key::host(3), "connect");
    let error = home.up(&spec(4, ""), None).await.result.unwrap_err();
    assert!(error.to_string().contains("no answer"), "{error}");
    assert!(home.cloud.elapsed() < SPACING * 3 + BOOT + Duration::from_secs(700), "{:?}", home.cloud.elapsed());
    assert_eq!(home.hosts.ran("prepare").len(), 3, "the others were prepared");
}
