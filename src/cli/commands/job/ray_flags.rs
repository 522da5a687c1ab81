//! Flags of `ray job submit`: values in JSON, and those that have no meaning here.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;

use crate::cli::command_error::usage;
use crate::error::Result;

/// Flags of `ray job submit` that `gpucl job submit` refuses, so that the error says what to use.
#[derive(Debug, clap::Args)]
pub(super) struct Refused {
    /// Refused: a cluster is named by --cluster
    #[arg(long, hide = true, value_name = "ADDRESS")]
    address: Option<String>,
    /// Refused: the connection is a loopback address or an SSH tunnel
    #[arg(long, hide = true, value_name = "VALUE")]
    verify: Option<String>,
    /// Refused: the cluster's token is sent without it
    #[arg(long, hide = true, value_name = "JSON")]
    headers: Option<String>,
    /// Refused: see --output, --raw and --quiet
    #[arg(long, hide = true, value_name = "STYLE")]
    log_style: Option<String>,
    /// Refused: see --output, --raw and --quiet
    #[arg(long, hide = true, value_name = "WHEN")]
    log_color: Option<String>,
    /// Refused: see --output, --raw and --quiet
    #[arg(short = 'v', long, hide = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

impl Refused {
    /// Fails if one of the flags is given, and says what to use.
    pub(super) fn check(&self) -> Result<()> {
        let refused = |flag: &str, why: &str, hint: &str| {
            Err(usage(format!("use {flag}"), format!("{flag} is a flag of `ray job submit`; {why}")).hint(hint))
        };
        if self.address.is_some() {
            return refused(
                "--address",
                "jobs go only to clusters that gpucl brought up, and it knows where they are",
                "name the cluster: -c NAME; for any other, use `ray job submit` itself",
            );
        }
        if self.verify.is_some() {
            return refused(
                "--verify",
                "the connection is the loopback or an SSH tunnel, without a TLS certificate",
                "leave it out; the hosts' SSH keys are checked",
            );
        }
        if self.headers.is_some() {
            return refused(
                "--headers",
                "the cluster's token is sent without it",
                "leave it out; to send others, use `ray job submit` after `eval \"$(gpucl env)\"`",
            );
        }
        if self.log_style.is_some() {
            return refused("--log-style", "gpucl's messages have one style", "for programs there is --output json");
        }
        if self.log_color.is_some() {
            return refused("--log-color", "gpucl's messages have no colours", "for the colours of the job use --raw");
        }
        if self.verbose > 0 {
            return refused("--verbose", "there is nothing more to print", "to print less use --quiet");
        }
        Ok(())
    }
}

/// Parses resources: `{"disk": 1}`.
pub(super) fn resources(text: &str) -> Result<BTreeMap<String, f64>, String> {
    let resources: BTreeMap<String, f64> = object(text, r#"{"disk": 1}"#)?;
    for (name, amount) in &resources {
        let flag = match name.as_str() {
            "CPU" => Some("--entrypoint-num-cpus"),
            "GPU" => Some("--entrypoint-num-gpus"),
            "memory" => Some("--entrypoint-memory"),
            _ => None,
        };
        if let Some(flag) = flag {
            return Err(format!("for `{name}` use {flag}"));
        }
        if *amount < 0.0 {
            return Err(format!("the amount of `{name}` must be 0 or more"));
        }
    }
    Ok(resources)
}

/// Parses a mapping of texts: `{"gpu": "A100"}`.
pub(super) fn texts(text: &str) -> Result<BTreeMap<String, String>, String> {
    object(text, r#"{"name": "value"}"#)
}

fn object<T: DeserializeOwned>(text: &str, example: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| format!("{error}; expected JSON such as {example}"))
}

/// Parses an amount of 0 or more.
pub(super) fn amount(text: &str) -> Result<f64, String> {
    let amount: f64 = text.parse().map_err(|_| "it is not a number".to_owned())?;
    if amount.is_finite() && amount >= 0.0 { Ok(amount) } else { Err("it must be 0 or more".to_owned()) }
}

/// Parses `NAME=VALUE`.
pub(in crate::cli::commands) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_values_are_checked_before_anything_is_sent() {
        assert_eq!(resources(r#"{"disk": 1, "slot": 0.5}"#).unwrap()["slot"], 0.5);
        assert_eq!(resources(r#"{"GPU": 1}"#).unwrap_err(), "for `GPU` use --entrypoint-num-gpus");
        assert!(resources(r#"{"disk": -1}"#).unwrap_err().contains("0 or more"));
        for wrong in ["[1]", "disk=1", r#"{"disk": "one"}"#] {
            assert!(resources(wrong).unwrap_err().contains(r#"such as {"disk": 1}"#), "{wrong}");
        }
        assert_eq!(texts(r#"{"gpu": "in(A100, H100)"}"#).unwrap()["gpu"], "in(A100, H100)");
        assert!(texts(r#"{"gpu": 1}"#).is_err());
    }
}
