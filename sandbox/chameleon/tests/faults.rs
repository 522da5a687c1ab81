use serde_json::{Value, json};

use super::super::{Rule, User};
use super::client::site;

const LEASES: &str = "^/reservation/v1/leases$";

#[tokio::test]
async fn a_cut_before_has_no_effect_and_a_cut_after_acts() {
    let site = site().await;
    for (fault, made) in [("cut-before", 0), ("cut-after", 1)] {
        site.sandbox.faults(vec![Rule::new("POST", LEASES, fault)]).unwrap();
        let asked = site.asked("liqid01", "now", &site.hour(1));
        let token = site.sandbox.token(User::Alice);
        assert!(site.send(&token, "POST", "/reservation/v1/leases", asked).await.is_err());
        assert_eq!(site.sandbox.snapshot().leases.len(), made, "{fault}");
    }
    let log = site.sandbox.log();
    let cut: Vec<(&str, u16)> = log.iter().filter_map(|entry| Some((entry.fault.as_deref()?, entry.status))).collect();
    assert_eq!(cut, [("cut-before", 0), ("cut-after", 0)]);
}

#[tokio::test]
async fn a_rule_skips_and_counts_requests() {
    let site = site().await;
    site.sandbox.faults(vec![Rule::new("GET", LEASES, "status:503").skipping(1).times(2)]).unwrap();
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(site.get("/reservation/v1/leases").await.status);
    }
    assert_eq!(seen, [200, 503, 503, 200]);
    let mut rule = Rule::new("GET", "^/compute/", "status:429");
    rule.headers.insert("Retry-After".to_owned(), "1".to_owned());
    site.sandbox.faults(vec![rule]).unwrap();
    let reply = site.get("/compute/v2.1/servers").await;
    assert_eq!((reply.status, reply.headers["retry-after"].to_str().unwrap()), (429, "1"));
    assert!(site.sandbox.faults(vec![Rule::new("GET", "(", "status:503")]).is_err());
    assert!(site.sandbox.faults(vec![Rule::new("GET", ".", "nonsense")]).is_err());
}

#[tokio::test]
async fn a_malformed_or_failed_answer_can_follow_a_success() {
    let site = site().await;
    for (fault, node) in [("malformed", "liqid01"), ("after:500", "liqid02")] {
        site.sandbox.faults(vec![Rule::new("POST", LEASES, fault)]).unwrap();
        let reply = site.lease(node, "now", &site.hour(1)).await;
        assert!(reply.body["lease"]["id"].is_null(), "{reply:?}");
    }
    assert_eq!(site.sandbox.snapshot().leases.len(), 2);
    site.sandbox.faults(vec![Rule::new("GET", ".", "delay:0.2")]).unwrap();
    let begin = std::time::Instant::now();
    site.get("/reservation/v1/leases").await;
    assert!(begin.elapsed().as_millis() >= 200);
}

#[tokio::test]
async fn the_control_works_like_the_fault_proxys() {
    let site = site().await;
    let rules =
        json!([{"method": "POST", "path": LEASES, "skip": 0, "count": 1, "fault": "status:502", "headers": {}}]);
    assert_eq!(site.steer("PUT", "/rules", rules).await.status, 204);
    assert_eq!(site.lease("liqid01", "now", &site.hour(1)).await.status, 502);
    let log = site.steer("GET", "/log", Value::Null).await.body;
    let entry = log.as_array().unwrap().last().unwrap();
    assert_eq!(
        (&entry["path"], &entry["status"], &entry["fault"]),
        (&json!("/reservation/v1/leases"), &json!(502), &json!("status:502"))
    );
    assert_eq!(site.steer("DELETE", "/rules", Value::Null).await.status, 204);
    assert_eq!(site.lease("liqid01", "now", &site.hour(1)).await.status, 201);
    assert_eq!(site.steer("POST", "/advance", json!({"seconds": 7200})).await.status, 204);
    let snapshot = site.steer("GET", "/snapshot", Value::Null).await.body;
    assert_eq!(snapshot["leases"][0]["hosts"], json!(["liqid01"]));
}

#[tokio::test]
async fn the_log_contains_no_secret() {
    let site = site().await;
    let known = site.sandbox.credentials(User::Alice);
    let asked = json!({"auth": {"identity": {"methods": ["application_credential"],
        "application_credential": {"id": known.id, "secret": known.secret}}}});
    assert_eq!(site.send("", "POST", "/identity/v3/auth/tokens", asked).await.unwrap().status, 201);
    let log = format!("{:?}", site.sandbox.log());
    assert!(log.contains(&known.id) && !log.contains(&known.secret));
}
