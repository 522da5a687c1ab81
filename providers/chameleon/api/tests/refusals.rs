//! Classification of refusals recorded from real services.

use reqwest::{Method, StatusCode};
use serde_json::Value;

use super::super::failure::classify;
use crate::chameleon::api::{Effect, Failure, FailureKind};
use crate::error::{Error, ErrorKind, LeftBehind, Status};

#[test]
fn refusals_are_distinguished_by_their_text() {
    let table: Vec<Value> = serde_json::from_str(include_str!("../../fixtures/refusals.json")).unwrap();
    assert!(table.len() > 25);
    for row in table {
        let body = row["body"].as_str().map_or_else(|| row["body"].to_string(), str::to_owned);
        let method: Method = row["method"].as_str().unwrap().parse().unwrap();
        let status = StatusCode::from_u16(u16::try_from(row["status"].as_u64().unwrap()).unwrap()).unwrap();
        let failure = classify("try it", &method, status, body.as_bytes());
        assert_eq!(format!("{:?}", failure.kind), row["kind"], "{body}");
        assert_eq!(format!("{:?}", failure.effect), row["effect"], "{body}");
        assert_eq!(failure.text, row["text"], "{body}");
    }
}

#[test]
fn a_failure_becomes_an_error_that_says_what_may_be_left() {
    let failure = Failure::new(FailureKind::NotEnough, "make the lease x at CHI@UC", "Not enough hosts available");
    let error = Error::from(failure);
    assert_eq!((error.kind(), error.retry_status()), (ErrorKind::Provider, Status::Permanent));
    assert_eq!(*error.left_behind(), LeftBehind::Clear);
    assert_eq!(error.to_string(), "make the lease x at CHI@UC: Not enough hosts available");
    assert!(error.hints()[0].contains("gpucl calendar"));
    let cut = Failure { effect: Effect::Unknown, ..Failure::new(FailureKind::Cut, "make it", "the connection broke") };
    let error = Error::from(cut);
    assert_eq!((error.retry_status(), error.left_behind()), (Status::Persistent, &LeftBehind::Unknown));
    let moving = Error::from(Failure::new(FailureKind::InTransition, "delete it", "Invalid lease status"));
    assert_eq!(moving.retry_status(), Status::Temporary);
}
