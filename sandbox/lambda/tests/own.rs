use serde_json::{Value, json};

use super::super::User;
use super::client::{KIND, REGION, cloud, refused};

#[tokio::test]
async fn the_control_changes_the_stand_in() {
    let cloud = cloud().await;
    let steer = async |path: &str, body: Value| cloud.steer("POST", path, body).await.status;
    let capacity = json!({"type": KIND, "region": REGION, "count": 0});
    assert_eq!(steer("/capacity", capacity).await, 204);
    refused(&cloud.launch(json!({})).await, 400, "instance-operations/launch/insufficient-capacity");
    assert_eq!(steer("/capacity", json!({"type": KIND, "region": REGION, "count": 3, "in_seconds": 60})).await, 204);
    assert_eq!(steer("/advance", json!({"seconds": 61})).await, 204);
    assert_eq!(steer("/next", json!({"outcome": "unhealthy"})).await, 204);
    let id = cloud.launched().await;
    assert_eq!(cloud.status(&id).await, "unhealthy");
    assert_eq!(steer("/vanish", json!({"type": KIND, "region": REGION})).await, 204);
    refused(&cloud.launch(json!({})).await, 400, "instance-operations/launch/insufficient-capacity");
    assert_eq!(steer(&format!("/refuse-terminate/{id}"), json!({"times": 1})).await, 204);
    refused(&cloud.terminate(&id).await, 400, "global/invalid-parameters");
    assert_eq!(steer(&format!("/preempt/{id}"), json!({})).await, 204);
    assert_eq!(cloud.status(&id).await, "preempted");
    assert_eq!(steer(&format!("/terminate/{id}"), json!({})).await, 204);
    assert_eq!(cloud.status(&id).await, "terminated");
    let foreign = cloud.steer("POST", "/foreign", json!({"count": 2})).await.body;
    assert_eq!(foreign["ids"].as_array().unwrap().len(), 2);
    let snapshot = cloud.steer("GET", "/snapshot", Value::Null).await.body;
    assert_eq!(snapshot["instances"].as_array().unwrap().len(), 3);
    let pace = cloud.steer("GET", "/pace", Value::Null).await.body;
    assert_eq!(pace["launches"], json!(3));
    let contract = cloud.steer("GET", "/contract", Value::Null).await.body;
    assert_eq!((&contract["validated"]["violations"], &contract["violations"]), (&json!(0), &json!([])));
    assert_eq!(steer("/account", json!({"is": "inactive"})).await, 204);
    refused(&cloud.call("GET", "/instances", Value::Null).await, 403, "global/account-inactive");
    assert_eq!(steer("/revoke", json!({"user": "alice"})).await, 204);
    refused(&cloud.call("GET", "/instances", Value::Null).await, 401, "global/invalid-api-key");
    let rules = json!([{"method": "GET", "path": ".", "fault": "status:500"}]);
    assert_eq!(cloud.steer("PUT", "/rules", rules).await.status, 204);
    assert!(cloud.steer("GET", "/log", Value::Null).await.body.as_array().unwrap().len() > 5);
}

#[tokio::test]
async fn the_control_refuses_invalid_requests() {
    let cloud = cloud().await;
    let wrong = [
        ("/capacity", json!({"type": "nonsense", "region": REGION, "count": 1})),
        ("/capacity", json!({"type": KIND, "region": REGION})),
        ("/vanish", json!({"type": KIND, "region": "mars-1"})),
        ("/next", json!({"outcome": "nonsense"})),
        ("/advance", json!({"seconds": -1})),
        ("/revoke", json!({"user": "nobody"})),
        ("/account", json!({})),
        ("/preempt/nobody", json!({})),
    ];
    for (path, body) in wrong {
        assert_eq!(cloud.steer("POST", path, body).await.status, 400, "{path}");
    }
    let reply = cloud.steer("GET", "/nonsense", Value::Null).await;
    assert!(reply.status == 404 && reply.body.as_str().unwrap().contains("snapshot"));
}

#[tokio::test]
async fn the_log_contains_no_api_key() {
    let cloud = cloud().await;
    cloud.launched().await;
    let log = format!("{:?}", cloud.sandbox.log());
    assert!(log.contains("instance-operations") && !log.contains(&cloud.sandbox.key(User::Alice)));
}
