//! Classification of responses.

use reqwest::{Method, StatusCode};
use serde_json::json;

use super::failure::{Failure, FailureKind, classify};
use super::{Effect, Instance, Status, endpoint, place_of};
use crate::error::{Error, ErrorKind, LeftBehind, Status as Retry};

fn answered(method: &Method, status: u16, body: &str) -> Failure {
    classify("launch a gpu_1x_a10", method, StatusCode::from_u16(status).unwrap(), body.as_bytes())
}

fn refused(status: u16, code: &str) -> Failure {
    let body = json!({"error": {"code": code, "message": "Words that change.", "suggestion": "Do this."}});
    answered(&Method::POST, status, &body.to_string())
}

/// Every documented code, and some undocumented ones.
#[test]
fn the_code_decides_whatever_the_status_and_the_message() {
    use FailureKind as Kind;
    for (status, code, kind, effect) in [
        (401, "global/invalid-api-key", Kind::InvalidKey, Effect::None),
        (403, "global/account-inactive", Kind::AccountInactive, Effect::None),
        (403, "global/invalid-address", Kind::AccountInactive, Effect::None),
        (403, "global/forbidden", Kind::Forbidden, Effect::None),
        (400, "global/invalid-parameters", Kind::InvalidParameters, Effect::None),
        (400, "global/quota-exceeded", Kind::Quota, Effect::None),
        (400, "global/duplicate", Kind::Duplicate, Effect::None),
        (400, "global/object-does-not-exist", Kind::NotFound, Effect::None),
        (404, "global/object-does-not-exist", Kind::NotFound, Effect::None),
        (404, "global/not-found", Kind::NotFound, Effect::None),
        (409, "global/conflict", Kind::Conflict, Effect::None),
        (400, "instance-operations/launch/insufficient-capacity", Kind::NoCapacity, Effect::None),
        (400, "instance-operations/launch/file-system-in-wrong-region", Kind::WrongRegion, Effect::None),
        (400, "filesystems/filesystem-in-use", Kind::InUse, Effect::None),
        (409, "firewall-rulesets/firewall-ruleset-in-use", Kind::InUse, Effect::None),
        (500, "global/internal-error", Kind::Fault, Effect::Unknown),
        (503, "provider/internal-unavailable", Kind::Fault, Effect::Unknown),
        (429, "global/too-many-requests", Kind::RateLimited, Effect::None),
        (418, "global/teapot", Kind::Refused, Effect::None),
        (500, "global/of-next-year", Kind::Fault, Effect::Unknown),
    ] {
        let failure = refused(status, code);
        assert_eq!((failure.kind, failure.effect), (kind, effect), "{status} {code}");
        assert!(failure.text.contains(code), "{}", failure.text);
    }
}

#[test]
fn a_response_without_a_code_is_not_lambdas() {
    let page = "<!DOCTYPE html><html><body>Just a moment...</body></html>";
    let of_proxy = answered(&Method::POST, 502, page);
    assert_eq!((of_proxy.kind, of_proxy.effect), (FailureKind::NoApi, Effect::Unknown));
    let blocked = answered(&Method::POST, 403, page);
    assert_eq!((blocked.kind, blocked.effect), (FailureKind::NoApi, Effect::None));
    assert!(blocked.text.contains("a web page answered, with status 403"), "{}", blocked.text);
    assert!(!blocked.passes() && of_proxy.passes());
    // The status alone says enough.
    assert_eq!(answered(&Method::POST, 429, page).kind, FailureKind::RateLimited);
    assert_eq!(answered(&Method::GET, 500, "").effect, Effect::None);
}

#[test]
fn an_error_says_whether_to_retry_and_what_is_left_behind() {
    let parts = |failure: Failure| {
        let error = Error::from(failure);
        (error.kind(), error.retry_status(), error.left_behind().clone())
    };
    let capacity = refused(400, "instance-operations/launch/insufficient-capacity");
    assert_eq!(parts(capacity), (ErrorKind::Capacity, Retry::Temporary, LeftBehind::Clear));
    let quota = refused(400, "global/quota-exceeded");
    assert_eq!(parts(quota), (ErrorKind::Provider, Retry::Permanent, LeftBehind::Clear));
    let fault = refused(500, "global/internal-error");
    assert_eq!(parts(fault), (ErrorKind::Provider, Retry::Persistent, LeftBehind::Unknown));
}

#[test]
fn an_instance_is_read_despite_unknown_fields_and_without_its_secrets() {
    let instance: Instance = serde_json::from_value(json!({
        "id": "i", "name": null, "status": "hibernating", "ssh_key_names": [], "file_system_names": [],
        "region": {"name": "us-east-1", "description": "x", "planet": "earth"},
        "instance_type": {"name": "gpu_1x_a10", "description": "", "gpu_description": "A10 (24 GB PCIe)",
            "price_cents_per_hour": 129, "specs": {"vcpus": 30, "memory_gib": 200, "storage_gib": 1, "gpus": 1}},
        "jupyter_token": "secret-of-jupyter", "jupyter_url": "https://x/?token=secret-of-jupyter",
        "actions": {"terminate": {"available": false, "reason_code": "of-next-year"}},
        "tags": [{"key": "gpucl", "value": "gpucl-abcd1234-demo-host0"}], "new_field": [1, 2],
    }))
    .unwrap();
    assert_eq!(instance.status, Status::Other("hibernating".to_owned()));
    assert_eq!(instance.tag("gpucl"), Some("gpucl-abcd1234-demo-host0"));
    assert_eq!((instance.address(), instance.instance_type.price().to_string()), (None, "1.29 USD".to_owned()));
    assert!(!format!("{instance:?}").contains("secret-of-jupyter"));
}

/// An address is written to `ssh_config`, to firewall rules and to hosts.
#[test]
fn an_address_of_an_instance_is_an_ip_address_or_none() {
    let instance = |ip: &str| -> Instance {
        serde_json::from_value(json!({
            "id": "i", "status": "active", "region": {"name": "us-east-1"}, "ip": ip, "private_ip": ip,
            "instance_type": {"name": "gpu_1x_a10", "price_cents_per_hour": 129, "specs": {}},
        }))
        .unwrap()
    };
    for attack in ["203.0.113.7\n    ProxyCommand touch /tmp/x", "-oProxyCommand=sh", "host.example", "$(id)", ""] {
        assert_eq!((instance(attack).address(), instance(attack).private_address()), (None, None), "{attack}");
    }
    for ip in ["203.0.113.7", "2001:db8::7"] {
        assert_eq!(instance(ip).address().map(|ip| ip.to_string()).as_deref(), Some(ip));
    }
}

#[test]
fn an_endpoint_is_accepted_in_every_spelling_but_never_unencrypted() {
    for text in ["https://cloud.lambda.ai", "https://cloud.lambda.ai/", "https://cloud.lambda.ai/api/v1/"] {
        assert_eq!(place_of(&endpoint(text).unwrap()), "Lambda");
    }
    assert_eq!(place_of(&endpoint("http://127.0.0.1:4040").unwrap()), "127.0.0.1:4040");
    for text in ["http://cloud.lambda.ai", "http://127.0.0.1.example", "cloud.lambda.ai", "ftp://x"] {
        assert!(endpoint(text).is_err(), "{text}");
    }
}
