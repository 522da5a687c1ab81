//! The client: one address, one token, a limit of time on every call.

use std::fmt;
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable as _};
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use secrecy::{ExposeSecret as _, SecretString};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result, Status};

/// How long a read may take.
const READ_LIMIT: Duration = Duration::from_secs(20);
/// How long a connection may take to be made.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// How much of an answer that is an error is read.
const ERROR_BODY_LIMIT: usize = 256 * 1024;
/// What a person can run when Ray does not answer.
const STATUS_HINT: &str = "is the cluster up? `gpucl status`";

/// A client of one cluster's Ray dashboard and job API.
#[derive(Clone)]
pub struct Client {
    base: String,
    token: SecretString,
    // Building fails only when the system does; it is told at the first call, so that making a client stays simple.
    http: std::result::Result<reqwest::Client, String>,
}

/// Which token a probe sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenChoice {
    /// None at all.
    None,
    /// One that is not the cluster's.
    Wrong,
    /// The cluster's.
    Right,
}

/// What Ray says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// The version of Ray.
    pub ray_version: String,
    /// The commit it was built from.
    #[serde(default)]
    pub ray_commit: String,
    /// The name of this run of the head; another one after a restart.
    #[serde(default)]
    pub session_name: String,
}

impl Client {
    /// Makes a client of the dashboard's address, such as `http://127.0.0.1:8265`, and the cluster's token.
    pub fn new(base: impl Into<String>, token: SecretString) -> Self {
        Self {
            base: base.into(),
            token,
        }
    }
}
