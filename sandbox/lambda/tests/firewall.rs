use serde_json::{Value, json};

use super::super::Config;
use super::client::{REGION, cloud, id_of, refused, with};

fn ssh() -> Value {
    json!({"protocol": "tcp", "port_range": [22, 22], "source_network": "0.0.0.0/0", "description": "SSH"})
}

#[tokio::test]
async fn a_regional_ruleset_attaches_at_launch_and_stays_while_in_use() {
    let cloud = cloud().await;
    let asked = |region: &str| json!({"name": "gpucl", "region": region, "rules": [ssh()]});
    let made = cloud.call("POST", "/firewall-rulesets", asked(REGION)).await;
    let id = made.body["data"]["id"].as_str().unwrap().to_owned();
    let path = format!("/firewall-rulesets/{id}");
    refused(&cloud.call("POST", "/firewall-rulesets", asked("us-south-1")).await, 400, "global/invalid-parameters");
    refused(&cloud.call("POST", "/firewall-rulesets", asked("mars-1")).await, 400, "global/invalid-parameters");
    let other_region = json!({"region_name": "us-west-1", "firewall_rulesets": [{"id": id}]});
    refused(&cloud.launch(other_region).await, 400, "global/invalid-parameters");

    let instance = id_of(&cloud.launch(json!({"firewall_rulesets": [{"id": id}]})).await);
    assert_eq!(cloud.get(&path).await["instance_ids"], json!([instance]));
    assert_eq!(cloud.get("/instances").await[0]["firewall_rulesets"], json!([{"id": id}]));
    let in_use = cloud.call("DELETE", &path, Value::Null).await;
    refused(&in_use, 400, "firewall-rulesets/firewall-ruleset-in-use");

    let peers = json!({"rules": [ssh(), {"protocol": "all", "port_range": [1, 65535], "source_network": "203.0.113.7",
        "description": "peer"}], "name": "gpucl-2"});
    let changed = cloud.call("PATCH", &path, peers).await.body["data"].clone();
    assert_eq!(
        (&changed["rules"][1]["source_network"], &changed["name"]),
        (&json!("203.0.113.7/32"), &json!("gpucl-2"))
    );
    assert_eq!(cloud.get(&path).await["rules"].as_array().unwrap().len(), 2);

    cloud.terminate(&instance).await;
    assert_eq!(cloud.call("DELETE", &path, Value::Null).await.body, json!({"data": {}}));
    refused(&cloud.call("GET", &path, Value::Null).await, 404, "global/object-does-not-exist");
    refused(&cloud.call("DELETE", &path, Value::Null).await, 404, "global/object-does-not-exist");
    refused(&cloud.call("PATCH", &path, json!({})).await, 404, "global/object-does-not-exist");
    cloud.sandbox.check().unwrap();
}

#[tokio::test]
async fn incomplete_or_invalid_rules_are_refused() {
    let cloud = with(Config { ruleset_quota: 1, ..Config::prompt() }).await;
    let rule = |protocol: &str, ports: Value, source: &str| {
        let mut rule = json!({"protocol": protocol, "source_network": source, "description": ""});
        if !ports.is_null() {
            rule["port_range"] = ports;
        }
        json!({"name": "r", "region": REGION, "rules": [rule]})
    };
    let by_the_text = [
        rule("icmp", json!([1, 2]), "0.0.0.0/0"),
        rule("tcp", Value::Null, "0.0.0.0/0"),
        rule("all", Value::Null, "0.0.0.0/0"),
        rule("udp", json!([9, 8]), "0.0.0.0/0"),
    ];
    for wrong in by_the_text {
        refused(&cloud.call("POST", "/firewall-rulesets", wrong).await, 400, "global/invalid-parameters");
    }
    cloud.sandbox.check().unwrap();
    let by_the_schema = [
        rule("tcp", json!([22]), "0.0.0.0/0"),
        rule("tcp", json!([0, 22]), "0.0.0.0/0"),
        rule("sctp", json!([22, 22]), "0.0.0.0/0"),
        rule("tcp", json!([22, 22]), "::/0"),
        rule("tcp", json!([22, 22]), "10.0.0.1/8"),
    ];
    for wrong in by_the_schema {
        refused(&cloud.call("POST", "/firewall-rulesets", wrong).await, 400, "global/invalid-parameters");
    }
    assert_eq!(cloud.sandbox.forget_violations().len(), 5);
    let right = rule("icmp", Value::Null, "10.0.0.0/8");
    assert_eq!(cloud.call("POST", "/firewall-rulesets", right.clone()).await.status, 200);
    refused(&cloud.call("POST", "/firewall-rulesets", right).await, 400, "global/quota-exceeded");
    assert_eq!(cloud.get("/firewall-rulesets").await.as_array().unwrap().len(), 1);
    cloud.sandbox.check().unwrap();
}

#[tokio::test]
async fn the_rules_of_the_account_are_replaced_as_a_whole() {
    let cloud = cloud().await;
    assert_eq!(cloud.get("/firewall-rules").await.as_array().unwrap().len(), 2, "SSH and ICMP");
    cloud.call("PUT", "/firewall-rules", json!({"data": [ssh()]})).await;
    assert_eq!(cloud.get("/firewall-rulesets/global").await["rules"], json!([ssh()]));
    let global = cloud.call("PATCH", "/firewall-rulesets/global", json!({"rules": []})).await;
    assert_eq!((&global.body["data"]["id"], &global.body["data"]["rules"]), (&json!("global"), &json!([])));
    assert_eq!(cloud.get("/firewall-rules").await, json!([]));
    assert_eq!(cloud.sandbox.snapshot().global_rules.len(), 0);
    cloud.sandbox.check().unwrap();
}
