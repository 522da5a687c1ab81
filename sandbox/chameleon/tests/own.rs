//! Features of the stand-in itself: late lists, deliberate bugs, many instances at once.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::{Bug, Config, User};
use super::client::{Site, site, with};

async fn listed(site: &Site) -> usize {
    site.get("/reservation/v1/leases").await.body["leases"].as_array().unwrap().len()
}

async fn bug(bug: Bug) -> Site {
    with(Config { bugs: [bug].into(), ..Config::default() }).await
}

#[tokio::test]
async fn two_posts_create_two_resources() {
    let site = site().await;
    for node in ["liqid01", "liqid02"] {
        assert_eq!(site.lease(node, "now", &site.hour(1)).await.status, 201);
        assert_eq!(site.floating().await.status, 201);
        site.server(None).await;
    }
    let snapshot = site.sandbox.snapshot();
    assert_eq!((snapshot.leases.len(), snapshot.floating_ips.len(), snapshot.servers.len()), (2, 2, 2));
    assert_eq!(snapshot.of_user(User::Alice).count(), snapshot.count());
    assert_eq!(snapshot.of_user(User::Bob).count(), 0);
}

#[tokio::test]
async fn lists_are_late_but_single_requests_are_not() {
    let site = with(Config { late: Duration::from_secs(60), ..Config::default() }).await;
    let made = site.lease("liqid01", &site.hour(1), &site.hour(2)).await;
    let path = format!("/reservation/v1/leases/{}", made.body["lease"]["id"].as_str().unwrap());
    assert_eq!((listed(&site).await, site.get(&path).await.status), (0, 200));
    site.sandbox.advance(Duration::from_secs(61));
    assert_eq!(listed(&site).await, 1);
    site.call("DELETE", &path, Value::Null).await;
    assert_eq!((listed(&site).await, site.get(&path).await.status), (1, 404));
    site.sandbox.advance(Duration::from_secs(61));
    assert_eq!(listed(&site).await, 0);
}

#[tokio::test]
async fn each_deliberate_bug_does_what_its_name_says() {
    let site = bug(Bug::LosesCreated).await;
    assert_eq!((site.lease("liqid01", "now", &site.hour(1)).await.status, site.floating().await.status), (201, 201));
    assert!(site.sandbox.snapshot().is_empty());

    let site = bug(Bug::DuplicatesOnCreate).await;
    site.lease("liqid01", "now", &site.hour(1)).await;
    site.floating().await;
    assert_eq!(site.sandbox.snapshot().count(), 4);

    let site = bug(Bug::ListsForeign).await;
    let asked = site.asked("liqid01", "now", &site.hour(1));
    site.by(User::Carol, "POST", "/reservation/v1/leases", asked).await;
    assert_eq!(listed(&site).await, 1);

    let site = bug(Bug::DeleteDoesNothing).await;
    let (lease, _) = site.active("liqid01").await;
    assert_eq!(site.call("DELETE", &format!("/reservation/v1/leases/{lease}"), Value::Null).await.status, 204);
    assert_eq!(listed(&site).await, 1);

    let site = bug(Bug::LateForever).await;
    site.lease("liqid01", "now", &site.hour(1)).await;
    site.sandbox.advance(Duration::from_secs(1800));
    assert_eq!((listed(&site).await, site.sandbox.snapshot().leases.len()), (0, 1));

    let site = bug(Bug::LosesTags).await;
    let made = site.floating().await;
    assert_eq!(made.body["floatingip"]["description"], json!(""));
}

#[tokio::test]
async fn a_lease_can_be_degraded_broken_and_deleted_by_others() {
    let site = site().await;
    let (lease, reservation) = site.active("liqid01").await;
    let path = format!("/reservation/v1/leases/{lease}");
    assert!(site.sandbox.degrade(&lease));
    assert_eq!(site.get(&path).await.body["lease"]["degraded"], true);
    assert!(site.sandbox.break_lease(&lease));
    let reply = site.get(&path).await.body;
    assert_eq!(
        (&reply["lease"]["status"], &reply["lease"]["reservations"][0]["status"]),
        (&json!("ERROR"), &json!("error"))
    );
    assert_eq!(site.server(Some(&reservation)).await["status"], "ERROR");
    assert!(site.sandbox.delete_lease(&lease));
    assert_eq!(site.get(&path).await.status, 404);
}

#[tokio::test]
async fn many_stand_ins_run_at_once_without_sharing_state() {
    let begin = std::time::Instant::now();
    let mut sites = Vec::new();
    for _ in 0..30 {
        sites.push(site().await);
    }
    sites[0].lease("liqid01", "now", &sites[0].hour(1)).await;
    let counts: Vec<usize> = sites.iter().map(|site| site.sandbox.snapshot().count()).collect();
    assert_eq!((counts[0], counts.iter().sum::<usize>()), (1, 1));
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
}
