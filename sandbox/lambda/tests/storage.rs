use serde_json::{Value, json};

use super::super::Config;
use super::client::{REGION, cloud, id_of, refused, with};

#[tokio::test]
async fn a_file_system_is_regional_and_stays_while_mounted() {
    let cloud = cloud().await;
    let made = cloud.call("POST", "/filesystems", json!({"name": "data", "region": REGION})).await;
    let id = made.body["data"]["id"].as_str().unwrap().to_owned();
    assert_eq!(made.body["data"]["mount_point"], json!("/lambda/nfs/data"));
    let again = cloud.call("POST", "/filesystems", json!({"name": "data", "region": "us-west-1"})).await;
    refused(&again, 400, "global/duplicate");
    let nowhere = cloud.call("POST", "/filesystems", json!({"name": "other", "region": "mars-1"})).await;
    refused(&nowhere, 400, "global/invalid-parameters");
    let other_region = json!({"region_name": "us-west-1", "file_system_names": ["data"]});
    refused(&cloud.launch(other_region).await, 400, "instance-operations/launch/file-system-in-wrong-region");

    let instance = id_of(&cloud.launch(json!({"file_system_names": ["data"]})).await);
    let mounts = cloud.get("/instances").await[0]["file_system_mounts"].clone();
    assert_eq!(mounts, json!([{"mount_point": "/lambda/nfs/data", "file_system_id": id}]));
    assert_eq!(cloud.get("/file-systems").await[0]["is_in_use"], json!(true));
    let path = format!("/filesystems/{id}");
    refused(&cloud.call("DELETE", &path, Value::Null).await, 400, "filesystems/filesystem-in-use");
    cloud.terminate(&instance).await;
    let gone = cloud.call("DELETE", &path, Value::Null).await;
    assert_eq!(gone.body, json!({"data": {"deleted_ids": [id]}}));
    refused(&cloud.call("DELETE", &path, Value::Null).await, 404, "global/object-does-not-exist");
    cloud.sandbox.check().unwrap();
}

#[tokio::test]
async fn a_given_mount_point_overrides_the_default() {
    let cloud = cloud().await;
    let id = cloud.sandbox.add_file_system("data", REGION);
    let mount = json!({"mount_point": "/data/here", "file_system_id": id});
    cloud.launch(json!({"file_system_names": ["data"], "file_system_mounts": [mount]})).await;
    let shown = cloud.get("/instances").await[0].clone();
    assert_eq!((&shown["file_system_mounts"], &shown["file_system_names"]), (&json!([mount]), &json!(["data"])));
    cloud.sandbox.check().unwrap();
}

#[tokio::test]
async fn file_systems_have_a_quota() {
    let cloud = with(Config { file_system_quota: 0, ..Config::prompt() }).await;
    let reply = cloud.call("POST", "/filesystems", json!({"name": "data", "region": REGION})).await;
    refused(&reply, 400, "global/quota-exceeded");
    cloud.sandbox.check().unwrap();
}
