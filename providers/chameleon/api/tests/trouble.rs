//! Failing services, and which calls are retried.

use std::time::{Duration, Instant};

use serde_json::json;

use super::forms::new_lease;
use super::server::{Fake, Reply};
use crate::chameleon::api::{Effect, FailureKind};
use crate::chameleon::credentials::Credentials;
use crate::event::EventKind;

fn leases() -> Reply {
    Reply::Json(200, json!({"leases": []}))
}

fn text(status: u16, body: &str) -> Reply {
    Reply::Text(status, "", body.to_owned())
}

#[tokio::test]
async fn a_read_is_retried_whatever_broke() {
    for broken in
        [text(500, "x"), text(502, "x"), text(503, ""), text(504, ""), Reply::Cut, Reply::Half, text(200, "{")]
    {
        let fake = Fake::start().await;
        fake.reply("GET /reservation", broken.clone()).reply("GET /reservation", leases());
        assert!(fake.site().leases().await.is_ok(), "{broken:?}");
        assert_eq!(fake.asked().len(), 2, "{broken:?}");
    }
}

#[tokio::test]
async fn a_token_request_is_retried_whatever_broke() {
    for broken in [text(503, ""), Reply::Cut] {
        let fake = Fake::start().await;
        fake.reply("POST /v3/auth/tokens", broken.clone());
        assert!(fake.site().who().await.is_ok(), "{broken:?}");
    }
}

#[tokio::test]
async fn a_changing_call_is_sent_once_and_its_effect_is_reported() {
    let not_enough = json!({"error_code": 500, "error_message": "Not enough hosts available", "error_name": 500});
    let table = [
        (Reply::Cut, FailureKind::Cut, Effect::Unknown),
        (Reply::Half, FailureKind::Cut, Effect::Unknown),
        (text(500, "x"), FailureKind::Fault, Effect::Unknown),
        (text(502, "x"), FailureKind::Fault, Effect::Unknown),
        (text(503, "x"), FailureKind::Fault, Effect::Unknown),
        (text(201, "{"), FailureKind::Malformed, Effect::Unknown),
        (text(201, "{}"), FailureKind::Malformed, Effect::Unknown),
        (Reply::Json(500, not_enough), FailureKind::NotEnough, Effect::None),
        (text(400, "no"), FailureKind::Refused, Effect::None),
    ];
    for (reply, kind, effect) in table {
        let fake = Fake::start().await;
        fake.reply("POST /reservation", reply.clone());
        let failure = fake.site().create_lease(&new_lease()).await.unwrap_err();
        assert_eq!((failure.kind, failure.effect), (kind, effect), "{reply:?}: {failure:?}");
        assert_eq!(fake.asked().len(), 1, "{reply:?}");
        assert_eq!(failure.doing, "make the lease demo at CHI@TACC");
    }
}

#[tokio::test]
async fn a_rate_limited_call_is_retried_when_the_service_says() {
    let fake = Fake::start().await;
    let limited = Reply::Text(429, "Retry-After: 1\r\n", "Too Many Requests".to_owned());
    fake.reply("DELETE", limited.clone());
    let begin = Instant::now();
    fake.site().delete_lease("L1").await.unwrap();
    assert!(begin.elapsed() >= Duration::from_secs(1));
    assert_eq!(fake.asked().len(), 2);
    let patient = Reply::Text(429, "Retry-After: 3600\r\n", "Too Many Requests".to_owned());
    fake.reply("GET /reservation", patient);
    let begin = Instant::now();
    assert_eq!(fake.site().leases().await.unwrap_err().kind, FailureKind::RateLimited);
    assert!(begin.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn a_long_wait_is_reported() {
    let fake = Fake::start().await;
    fake.reply("GET /reservation", Reply::Text(429, "Retry-After: 3\r\n", String::new()));
    fake.reply("GET /reservation", leases());
    let (site, mut inbox) = fake.site_with(fake.credentials());
    site.leases().await.unwrap();
    let Ok(EventKind::Note { message }) = inbox.try_recv() else { panic!("nothing was reported") };
    assert_eq!(message, "failed to list the leases at CHI@TACC: the service answered 429; retrying in 3 s");
}

#[tokio::test]
async fn an_unreachable_service_is_reported_as_such_without_effect() {
    let fake = Fake::start().await;
    // The services went away after the token was obtained.
    fake.change_token(|token| {
        for service in token["token"]["catalog"].as_array_mut().unwrap() {
            service["endpoints"][0]["url"] = "http://127.0.0.1:1".into();
        }
    });
    let failure = fake.site().create_lease(&new_lease()).await.unwrap_err();
    assert_eq!((failure.kind, failure.effect), (FailureKind::Unreachable, Effect::None));
    let bad = Credentials { auth_url: "not a url".to_owned(), ..fake.credentials() };
    let (bus, _inbox) = crate::event::Bus::new();
    assert!(crate::chameleon::api::Site::new(bad, bus).unwrap_err().to_string().contains("is not a URL"));
}

/// Keystone's own URL was checked; the URLs in its catalog must be checked too.
#[tokio::test]
async fn a_token_is_not_sent_to_a_service_in_the_clear() {
    let fake = Fake::start().await;
    fake.change_token(|token| {
        for service in token["token"]["catalog"].as_array_mut().unwrap() {
            service["endpoints"][0]["url"] = "http://compute.example:8774/v2.1".into();
        }
    });
    let failure = fake.site().servers().await.unwrap_err();
    assert_eq!((failure.kind, failure.effect), (FailureKind::Refused, Effect::None));
    assert!(
        failure.text.contains("http://compute.example:8774/v2.1") && failure.text.contains("https only"),
        "{failure:?}"
    );
}

#[tokio::test]
async fn keystone_is_not_spoken_to_in_the_clear() {
    let fake = Fake::start().await;
    for address in ["http://chi.example:5000/v3", "http://10.0.0.1:5000/v3", "ftp://127.0.0.1/v3"] {
        let (bus, _inbox) = crate::event::Bus::new();
        let credentials = Credentials { auth_url: address.to_owned(), ..fake.credentials() };
        let error = crate::chameleon::api::Site::new(credentials, bus).unwrap_err();
        assert!(error.to_string().contains("unencrypted"), "{address}: {error}");
    }
}

/// Each time, and before anything is sent.
#[tokio::test]
async fn a_certificate_that_is_not_verified_causes_a_warning() {
    let fake = Fake::start().await;
    let (_site, mut inbox) = fake.site_with(Credentials { verify: false, ..fake.credentials() });
    let Ok(EventKind::Warning { message }) = inbox.try_recv() else { panic!("nothing was reported") };
    assert!(message.contains("the certificate of 127.0.0.1 is not verified"), "{message}");
    let (_site, mut inbox) = fake.site_with(fake.credentials());
    assert!(inbox.try_recv().is_err(), "a verified certificate needs no warning");
}

#[tokio::test]
async fn a_missing_role_is_named() {
    let fake = Fake::start().await;
    fake.change_token(|token| token["token"]["roles"] = json!([{"id": "1", "name": "member"}]));
    fake.reply("GET /reservation", Reply::Json(403, json!({"error_message": "Policy doesn't allow it"})));
    let failure = fake.site().hosts().await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Forbidden);
    assert!(failure.text.contains("`reader` is not among them"), "{failure:?}");
}
