use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::super::{Account, User};
use super::client::{cloud, refused};

#[tokio::test]
async fn only_bearer_and_basic_authorization_are_accepted() {
    let cloud = cloud().await;
    let key = cloud.sandbox.key(User::Alice);
    let basic = |text: String| format!("Basic {}", STANDARD.encode(text));
    for right in [format!("Bearer {key}"), format!("bearer {key}"), basic(format!("{key}:"))] {
        assert_eq!(cloud.send(&right, "GET", "/instances", Value::Null).await.status, 200, "{right}");
    }
    let wrong =
        ["", "Bearer", "Bearer nonsense", &format!("Token {key}"), &basic(key.clone()), &format!("Basic {key}:")];
    for wrong in wrong {
        refused(&cloud.send(wrong, "GET", "/instances", Value::Null).await, 401, "global/invalid-api-key");
    }
    cloud.sandbox.check().unwrap();
}

#[tokio::test]
async fn users_of_one_account_see_and_terminate_each_others_instances() {
    let cloud = cloud().await;
    let id = cloud.launched().await;
    let bob = format!("Bearer {}", cloud.sandbox.key(User::Bob));
    let seen = cloud.send(&bob, "GET", "/instances", Value::Null).await;
    assert_eq!(seen.body["data"][0]["id"], json!(id));
    let ended = cloud.send(&bob, "POST", "/instance-operations/terminate", json!({"instance_ids": [id]})).await;
    assert_eq!(ended.status, 200);
    cloud.sandbox.check().unwrap();
}

#[tokio::test]
async fn a_revoked_key_is_401_and_an_inactive_account_403() {
    let cloud = cloud().await;
    let carol = format!("Bearer {}", cloud.sandbox.key(User::Carol));
    refused(&cloud.send(&carol, "GET", "/instance-types", Value::Null).await, 403, "global/account-inactive");
    cloud.sandbox.change(|config| config.account = Account::Inactive);
    refused(&cloud.call("GET", "/instance-types", Value::Null).await, 403, "global/account-inactive");
    cloud.sandbox.change(|config| config.account = Account::NoAddress);
    refused(&cloud.launch(json!({})).await, 403, "global/invalid-address");
    refused(
        &cloud.call("POST", "/filesystems", json!({"name": "data", "region": "us-east-1"})).await,
        403,
        "global/invalid-address",
    );
    cloud.sandbox.revoke(User::Alice);
    refused(&cloud.call("GET", "/instance-types", Value::Null).await, 401, "global/invalid-api-key");
    cloud.sandbox.check().unwrap();
}
