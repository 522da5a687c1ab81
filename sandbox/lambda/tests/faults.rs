use serde_json::{Value, json};

use super::super::{Rule, User};
use super::client::{cloud, refused};

const LAUNCH: &str = "^/api/v1/instance-operations/launch$";

#[tokio::test]
async fn a_launch_may_take_effect_although_its_answer_is_lost() {
    let cloud = cloud().await;
    for (fault, made) in [("cut-before", 0), ("cut-after", 1)] {
        cloud.sandbox.faults(vec![Rule::new("POST", LAUNCH, fault)]).unwrap();
        assert!(cloud.tried("POST", "/instance-operations/launch", cloud.asked()).await.is_err());
        assert_eq!(cloud.sandbox.snapshot().instances.len(), made, "{fault}");
    }
    let log = cloud.sandbox.log();
    let cut: Vec<(&str, u16)> = log.iter().filter_map(|entry| Some((entry.fault.as_deref()?, entry.status))).collect();
    assert_eq!(cut, [("cut-before", 0), ("cut-after", 0)]);
    cloud.sandbox.check().unwrap();
}

#[tokio::test]
async fn each_fault_answers_in_its_own_format() {
    let cloud = cloud().await;
    let is_html = |body: &Value| body.as_str().is_some_and(|text| text.starts_with("<html>"));
    let cases: [(&str, u16, usize); 7] = [
        ("status:429", 429, 0),
        ("status:500", 500, 0),
        ("after:500", 500, 1),
        ("html:502", 502, 1),
        ("after-html:504", 504, 2),
        ("html:200", 200, 2),
        ("status:503", 503, 2),
    ];
    for (fault, status, made) in cases {
        cloud.sandbox.faults(vec![Rule::new("POST", LAUNCH, fault)]).unwrap();
        let reply = cloud.launch(json!({})).await;
        assert_eq!((reply.status, cloud.sandbox.snapshot().instances.len()), (status, made), "{fault}");
        match fault {
            "status:500" | "after:500" => refused(&reply, 500, "global/internal-error"),
            "status:429" => assert!(!is_html(&reply.body)),
            _ => assert!(is_html(&reply.body), "{fault}: {reply:?}"),
        }
    }
    cloud.sandbox.faults(vec![Rule::new("POST", LAUNCH, "malformed")]).unwrap();
    let reply = cloud.launch(json!({})).await;
    assert!(reply.status == 200 && reply.body.is_string(), "{reply:?}");
    let named = cloud.sandbox.validated().undeclared;
    let counts: Vec<(&str, u64)> = named.into_iter().collect();
    assert_eq!(counts, [("429", 1), ("5xx", 2), ("HTML", 4), ("malformed", 1)]);
    cloud.sandbox.check().unwrap();
}

#[tokio::test]
async fn an_injected_refusal_is_one_that_the_path_declares() {
    let cloud = cloud().await;
    let cases = [
        ("DELETE", "/ssh-keys/x", 404, "global/not-found"),
        ("GET", "/instances/x", 404, "global/object-does-not-exist"),
        ("GET", "/instances/x", 403, "global/account-inactive"),
        ("GET", "/instances/x", 401, "global/invalid-api-key"),
    ];
    for (method, path, status, code) in cases {
        cloud.sandbox.faults(vec![Rule::new(method, ".", &format!("status:{status}"))]).unwrap();
        refused(&cloud.call(method, path, Value::Null).await, status, code);
    }
    let body = r#"{"error": {"code": "provider/internal-unavailable", "message": "Provider unavailable"}}"#;
    cloud.sandbox.faults(vec![Rule::new("GET", "/instances$", "status:400").with_body(body)]).unwrap();
    refused(&cloud.call("GET", "/instances", Value::Null).await, 400, "provider/internal-unavailable");
    let late = Rule::new("GET", "/instances$", "status:429").with_header("Retry-After", "3");
    cloud.sandbox.faults(vec![late]).unwrap();
    let reply = cloud.call("GET", "/instances", Value::Null).await;
    assert_eq!(reply.headers["retry-after"].to_str().unwrap(), "3");
    cloud.sandbox.faults(vec![Rule::new("GET", "/instances$", "token-expire")]).unwrap();
    refused(&cloud.call("GET", "/instances", Value::Null).await, 401, "global/invalid-api-key");
    refused(&cloud.call("GET", "/instances", Value::Null).await, 401, "global/invalid-api-key");
    assert_eq!(cloud.sandbox.key(User::Alice), "");
    assert_eq!(cloud.sandbox.validated().undeclared["provider/*"], 1);
    cloud.sandbox.check().unwrap();
}

#[tokio::test]
async fn a_delay_fault_delays_the_answer() {
    let cloud = cloud().await;
    cloud.sandbox.fault(Rule::new("GET", ".", "delay:0.15")).unwrap();
    let begin = std::time::Instant::now();
    cloud.get("/regions").await;
    assert!(begin.elapsed().as_millis() >= 150);
}
