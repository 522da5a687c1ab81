use serde_json::json;

use super::super::{Bug, Config};
use super::client::{KIND, PUBLIC_KEY, REGION, cloud, id_of, refused, with};

#[tokio::test]
async fn a_launch_keeps_its_fields_and_never_shows_user_data() {
    let cloud = cloud().await;
    let reply = cloud
        .launch(json!({"name": "gpucl-demo-host1", "hostname": "host1", "user_data": "#cloud-config\n{}\n",
            "tags": [{"key": "gpucl", "value": "alice/demo"}], "image": {"family": "lambda-stack-22-04"}}))
        .await;
    let id = id_of(&reply);
    let shown = cloud.get(&format!("/instances/{id}")).await;
    assert_eq!(
        (&shown["name"], &shown["hostname"], &shown["tags"]),
        (&json!("gpucl-demo-host1"), &json!("host1"), &json!([{"key": "gpucl", "value": "alice/demo"}]))
    );
    assert!(shown["jupyter_token"].is_string() && !shown.to_string().contains("cloud-config"), "{shown}");
    let kept = cloud.sandbox.snapshot().instances.remove(0);
    assert_eq!((kept.user_data.as_deref(), kept.image.as_str()), (Some("#cloud-config\n{}\n"), "lambda-stack-22-04"));
    assert!(!format!("{kept:?}").contains("cloud-config"));
    assert!(!format!("{:?}", cloud.sandbox.log()).contains("cloud-config"));
    let renamed = cloud.call("POST", &format!("/instances/{id}"), json!({"name": "other"})).await;
    assert_eq!(renamed.body["data"]["name"], json!("other"));
    cloud.sandbox.check().unwrap();
}

#[tokio::test]
async fn two_launches_make_two_instances() {
    let cloud = cloud().await;
    let named = json!({"name": "twice"});
    let ids = [id_of(&cloud.launch(named.clone()).await), id_of(&cloud.launch(named).await)];
    assert_ne!(ids[0], ids[1]);
    assert_eq!(cloud.get("/instances").await.as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_launch_with_an_unknown_name_is_refused() {
    let cloud = cloud().await;
    let missing = [
        json!({"instance_type_name": "gpu_9x_z"}),
        json!({"region_name": "mars-1"}),
        json!({"ssh_key_names": ["nobody"]}),
        json!({"file_system_names": ["nothing"]}),
        json!({"file_system_mounts": [{"mount_point": "/data/x", "file_system_id": "nothing"}]}),
        json!({"image": {"family": "plan9"}}),
        json!({"image": {"id": "nothing"}}),
        json!({"firewall_rulesets": [{"id": "nothing"}]}),
    ];
    for more in &missing {
        refused(&cloud.launch(more.clone()).await, 400, "global/object-does-not-exist");
    }
    cloud.sandbox.change(|config| config.missing = 404);
    refused(&cloud.launch(missing[0].clone()).await, 404, "global/object-does-not-exist");
    assert_eq!(cloud.sandbox.snapshot().instances.len(), 0);
    cloud.sandbox.check().unwrap();
}

#[tokio::test]
async fn an_arm_type_takes_arm_images_only() {
    let cloud = cloud().await;
    let asked = json!({"instance_type_name": "gpu_1x_gh200", "image": {"family": "lambda-stack-22-04"}});
    refused(&cloud.launch(asked).await, 400, "global/object-does-not-exist");
    assert_eq!(cloud.launch(json!({"instance_type_name": "gpu_1x_gh200"})).await.status, 200);
    let images = cloud.get("/images").await;
    let of_arm = images.as_array().unwrap().iter().find(|image| image["architecture"] == "arm64").unwrap();
    assert_eq!(of_arm["family"], json!("lambda-stack-24-04"));
    cloud.sandbox.check().unwrap();
}

#[tokio::test]
async fn capacity_is_counted_and_may_be_gone_although_listed() {
    let cloud = with(Config::prompt().without_capacity().with_capacity(KIND, REGION, 1)).await;
    let regions = || async { cloud.get("/instance-types").await[KIND]["regions_with_capacity_available"].clone() };
    assert_eq!(regions().await, json!([{"name": REGION, "description": "Virginia, USA"}]));
    let id = cloud.launched().await;
    assert_eq!(regions().await, json!([]));
    refused(&cloud.launch(json!({})).await, 400, "instance-operations/launch/insufficient-capacity");
    cloud.terminate(&id).await;
    assert_eq!(regions().await[0]["name"], json!(REGION), "it is given back");
    assert!(cloud.sandbox.vanish(KIND, REGION));
    assert_eq!(regions().await[0]["name"], json!(REGION), "it is listed still");
    refused(&cloud.launch(json!({})).await, 400, "instance-operations/launch/insufficient-capacity");
    cloud.sandbox.capacity(KIND, REGION, 2);
    cloud.launched().await;
    assert!(!cloud.sandbox.vanish(KIND, "us-west-2"));
    cloud.sandbox.capacity_in(KIND, "us-west-2", 3, std::time::Duration::from_secs(600));
    assert_eq!(regions().await.as_array().unwrap().len(), 1);
    cloud.sandbox.advance(std::time::Duration::from_secs(601));
    assert_eq!(regions().await[1]["name"], json!("us-west-2"));
    cloud.sandbox.check().unwrap();
}

#[tokio::test]
async fn the_quota_of_instances_is_enforced() {
    let cloud = with(Config { instance_quota: 1, ..Config::prompt() }).await;
    cloud.launched().await;
    refused(&cloud.launch(json!({})).await, 400, "global/quota-exceeded");
    cloud.sandbox.check().unwrap();
}

#[tokio::test]
async fn key_names_may_repeat_unless_configured_otherwise() {
    let cloud = cloud().await;
    let body = json!({"name": "mine", "public_key": PUBLIC_KEY});
    let first = cloud.call("POST", "/ssh-keys", body.clone()).await;
    let second = cloud.call("POST", "/ssh-keys", body.clone()).await;
    assert_ne!(first.body["data"]["id"], second.body["data"]["id"]);
    assert_eq!(cloud.get("/ssh-keys").await.as_array().unwrap().len(), 2);
    cloud.sandbox.change(|config| config.unique_key_names = true);
    refused(&cloud.call("POST", "/ssh-keys", body).await, 400, "global/invalid-parameters");
    for wrong in
        ["nonsense", "ssh-ed25519 AAAA", "ssh-rsa AAAAC3NzaC1lZDI1NTE5AAAAICN+lJwsONkwrdsSnQsu1ydUkIuIg5oOC+Eslvmtt60T"]
    {
        let reply = cloud.call("POST", "/ssh-keys", json!({"name": "other", "public_key": wrong})).await;
        refused(&reply, 400, "global/invalid-parameters");
    }
    let id = first.body["data"]["id"].as_str().unwrap();
    let gone = cloud.call("DELETE", &format!("/ssh-keys/{id}"), json!(null)).await;
    assert_eq!((gone.status, &gone.body), (200, &json!({"data": {}})));
    refused(&cloud.call("DELETE", &format!("/ssh-keys/{id}"), json!(null)).await, 404, "global/not-found");
    assert_eq!(cloud.sandbox.snapshot().ssh_keys.len(), 1);
    cloud.sandbox.check().unwrap();
}

#[tokio::test]
async fn a_generated_private_key_is_returned_only_once() {
    let cloud = cloud().await;
    let made = cloud.call("POST", "/ssh-keys", json!({"name": "made"})).await;
    let private = made.body["data"]["private_key"].as_str().unwrap();
    assert!(private.starts_with("-----BEGIN OPENSSH PRIVATE KEY-----"), "{}", private.len());
    let listed = cloud.get("/ssh-keys").await;
    assert_eq!((&listed[0]["public_key"], listed[0].get("private_key")), (&made.body["data"]["public_key"], None));
    cloud.sandbox.check().unwrap();
}

#[tokio::test]
async fn bugs_can_be_switched_on() {
    let with_bug = async |bug| with(Config { bugs: [bug].into(), ..Config::prompt() }).await;
    let counts = [(Bug::LosesCreated, 0), (Bug::DuplicatesOnCreate, 2)];
    for (bug, count) in counts {
        let cloud = with_bug(bug).await;
        assert_eq!(cloud.launch(json!({})).await.status, 200);
        assert_eq!(cloud.sandbox.snapshot().instances.len(), count, "{bug:?}");
    }
    let cloud = with_bug(Bug::DeleteDoesNothing).await;
    let id = cloud.launched().await;
    assert_eq!(cloud.terminate(&id).await.status, 200);
    assert_eq!(cloud.status(&id).await, "active");
    let cloud = with_bug(Bug::LateForever).await;
    cloud.launched().await;
    assert_eq!(cloud.get("/instances").await, json!([]));
    let cloud = with_bug(Bug::LosesTags).await;
    cloud.launch(json!({"name": "lost", "tags": [{"key": "gpucl", "value": "x"}]})).await;
    let seen = cloud.sandbox.snapshot().instances.remove(0);
    assert_eq!((seen.name.as_str(), seen.tags.len()), ("", 0));
}
