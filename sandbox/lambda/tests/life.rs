use std::time::Duration;

use serde_json::json;

use super::super::{Config, Outcome};
use super::client::{cloud, refused, slow, with};

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test]
async fn an_instance_boots_shows_its_address_ends_slowly_and_lingers() {
    let cloud = with(slow()).await;
    let id = cloud.launched().await;
    let shown = cloud.get("/instances").await[0].clone();
    assert_eq!((&shown["status"], shown.get("ip"), shown.get("jupyter_token")), (&json!("booting"), None, None));
    assert_eq!(shown["actions"]["restart"]["reason_code"], json!("vm-has-not-launched"));
    refused(
        &cloud.call("POST", "/instance-operations/restart", json!({"instance_ids": [id]})).await,
        409,
        "global/conflict",
    );
    cloud.sandbox.advance(seconds(91));
    let shown = cloud.get("/instances").await[0].clone();
    assert!(shown["status"] == "booting" && shown["ip"].is_string(), "{shown}");
    cloud.sandbox.advance(seconds(150));
    assert_eq!(cloud.status(&id).await, "active");
    let ended = cloud.terminate(&id).await;
    assert_eq!(ended.body["data"]["terminated_instances"][0]["status"], json!("terminating"));
    assert_eq!(cloud.terminate(&id).await.status, 200, "it is asked for again");
    assert!(cloud.sandbox.snapshot().instances[0].is_billed);
    cloud.sandbox.advance(seconds(41));
    assert_eq!(cloud.status(&id).await, "terminated");
    refused(&cloud.terminate(&id).await, 404, "global/object-does-not-exist");
    let seen = cloud.sandbox.snapshot().instances.remove(0);
    let paid = seen.ended.unwrap().duration_since(seen.launched).as_secs();
    assert!(!seen.is_billed && (280..=284).contains(&paid), "{paid}");
    cloud.sandbox.advance(seconds(301));
    assert_eq!(cloud.get("/instances").await, json!([]));
    cloud.sandbox.check().unwrap();
}

#[tokio::test]
async fn moving_the_clock_applies_everything_that_is_due() {
    let cloud = with(slow()).await;
    let id = cloud.launched().await;
    cloud.terminate(&id).await;
    cloud.sandbox.advance(seconds(200));
    let ended = cloud.sandbox.snapshot().instances.remove(0);
    let after = ended.ended.unwrap().duration_since(ended.launched).as_secs();
    assert!((40..43).contains(&after), "it ended when it was due: {after}");
}

#[tokio::test]
async fn an_address_may_come_after_active_or_never() {
    let cloud = with(Config { address: seconds(30), ..Config::prompt() }).await;
    cloud.sandbox.next(Outcome::Active);
    cloud.sandbox.next(Outcome::NoAddress);
    let (late, never) = (cloud.launched().await, cloud.launched().await);
    let has = async |id: &str| {
        let shown = cloud.get(&format!("/instances/{id}")).await;
        assert_eq!(shown["status"], json!("active"));
        shown["ip"].is_string()
    };
    assert_eq!((has(&late).await, has(&never).await), (false, false));
    cloud.sandbox.advance(seconds(31));
    assert_eq!((has(&late).await, has(&never).await), (true, false));
    cloud.sandbox.check().unwrap();
}

#[tokio::test]
async fn instances_become_unhealthy_or_stuck_or_are_preempted() {
    let cloud = with(slow()).await;
    for outcome in [Outcome::Unhealthy, Outcome::Stuck, Outcome::Preempted, Outcome::Active] {
        cloud.sandbox.next(outcome);
        cloud.launched().await;
    }
    cloud.sandbox.advance(seconds(3600));
    let listed = cloud.get("/instances").await;
    let status: Vec<&str> = listed.as_array().unwrap().iter().map(|one| one["status"].as_str().unwrap()).collect();
    assert_eq!(status, ["unhealthy", "booting", "preempted", "active"]);
    let active = listed[3]["id"].as_str().unwrap();
    assert!(cloud.sandbox.make_unhealthy(active));
    assert_eq!(cloud.status(active).await, "unhealthy");
    let restarted = cloud.call("POST", "/instance-operations/restart", json!({"instance_ids": [active]})).await;
    assert_eq!(restarted.body["data"]["restarted_instances"][0]["status"], json!("booting"));
    assert_eq!(cloud.status(active).await, "active");
    assert!(cloud.sandbox.preempt(active));
    assert_eq!(cloud.status(active).await, "preempted");
    assert!(!cloud.sandbox.snapshot().instances[3].is_billed);
    assert!(!cloud.sandbox.preempt("nobody"));
    cloud.sandbox.check().unwrap();
}

#[tokio::test]
async fn a_termination_can_be_refused_or_come_from_others() {
    let cloud = cloud().await;
    let (id, other) = (cloud.launched().await, cloud.launched().await);
    cloud.sandbox.refuse_terminate(&id, 1);
    let shown = cloud.get(&format!("/instances/{id}")).await;
    assert_eq!(shown["actions"]["terminate"]["reason_code"], json!("vm-action-in-progress"));
    let both = json!({"instance_ids": [other, id]});
    refused(
        &cloud.call("POST", "/instance-operations/terminate", both.clone()).await,
        400,
        "global/invalid-parameters",
    );
    assert_eq!(cloud.status(&other).await, "active", "all or none");
    assert_eq!(cloud.call("POST", "/instance-operations/terminate", both).await.status, 200);
    let third = cloud.launched().await;
    assert!(cloud.sandbox.terminate_behind_our_back(&third));
    assert_eq!(cloud.status(&third).await, "terminated");
    refused(&cloud.terminate("nobody").await, 404, "global/object-does-not-exist");
    let nothing = json!({"instance_ids": []});
    refused(&cloud.call("POST", "/instance-operations/terminate", nothing).await, 400, "global/invalid-parameters");
    cloud.sandbox.check().unwrap();
}

#[tokio::test]
async fn foreign_instances_are_listed_and_marked_in_snapshots() {
    let cloud = cloud().await;
    let ids = cloud.sandbox.add_foreign(20);
    assert_eq!(ids.len(), 20);
    cloud.sandbox.add_machine("gpucl-demo-host1", &[("gpucl", "mallory/demo")]);
    cloud.launched().await;
    assert_eq!(cloud.get("/instances").await.as_array().unwrap().len(), 22);
    let snapshot = cloud.sandbox.snapshot();
    assert_eq!((snapshot.counts(), snapshot.ours().counts()), ([22, 1, 0, 0], [1, 1, 0, 0]));
    cloud.sandbox.check().unwrap();
}

#[tokio::test]
async fn new_resources_may_show_up_late() {
    let cloud = with(Config { late: seconds(20), ..Config::prompt() }).await;
    let id = cloud.launched().await;
    assert_eq!(cloud.get("/instances").await, json!([]));
    let one = cloud.call("GET", &format!("/instances/{id}"), json!(null)).await;
    refused(&one, 404, "global/object-does-not-exist");
    cloud.sandbox.advance(seconds(21));
    assert_eq!(cloud.get("/instances").await[0]["id"], json!(id));
    cloud.sandbox.check().unwrap();
}
