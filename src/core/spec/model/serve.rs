//! `serve`: applications of Ray Serve that `up` deploys, and the requests that show that they serve.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ray::DEFAULT_APPLICATION;
use crate::util::variable;

/// An application of Ray Serve.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("asks_nothing" = ["name", "route_prefix"]))]
pub struct ServeSpec {
    /// Its name, unique in the cluster.
    #[serde(default = "default_name")]
    pub name: String,
    /// What is deployed: MODULE:VARIABLE.
    #[schemars(extend("examples" = ["app:food"]))]
    #[schemars(extend("asks" = {"class": "runs", "says": "the application {}", "on": "here"}))]
    pub import_path: String,
    /// The folder with the module, by its path from the spec's folder; `~` is your home folder. What `.gitignore` and
    /// `.rayignore` there match is not sent, and no hidden folder. Absent, the nodes have the module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("examples" = ["app"]))]
    #[schemars(extend("asks" = {"rule": "files"}))]
    pub working_dir: Option<String>,
    /// Where its URLs begin, unique in the cluster.
    #[serde(default = "root")]
    pub route_prefix: String,
    /// Packages of its own, as pip takes them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    #[schemars(extend("asks" = {"class": "runs", "says": "Python packages: {}", "on": "here"}))]
    pub pip: Vec<String>,
    /// Environment variables of its replicas.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("asks" = {"rule": "environment"}))]
    pub env: BTreeMap<String, String>,
    /// Secrets that its replicas have as environment variables, by the names that `gpucl secret set` stored them under:
    /// `NAME`, or `NAME=VARIABLE`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[schemars(extend("asks" = {"class": "sends", "says": "your secrets {}, to an application"}))]
    pub secrets: Vec<String>,
    /// What its builder is called with, where the variable is a function.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(extend("asks" = {"class": "runs", "says": "with the arguments {}", "on": "here"}))]
    pub args: Map<String, Value>,
    /// Options of its deployments, as a config file of Serve has them: `{name: Food, num_replicas: 2}`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[schemars(extend("asks" = {"class": "runs", "says": "with the options {}", "on": "here"}))]
    pub deployments: Vec<Map<String, Value>>,
    /// A request that it must answer before the cluster is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<ServeRequest>,
    /// The folder's absolute path on this machine, links followed; filled in when the spec is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub source: Option<String>,
}

/// A request to an application, and the answer to expect.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("asks_nothing" = ["path", "method", "body"]))]
pub struct ServeRequest {
    /// What follows the route prefix, such as `/predict?top=3`.
    pub path: String,
    /// The method; `POST` where there is a body, else `GET`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<ServeMethod>,
    /// The body: a text as it is, anything else as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
    /// The answer.
    pub expect: ServeAnswer,
}

/// The method of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum ServeMethod {
    /// `GET`.
    Get,
    /// `POST`.
    Post,
    /// `PUT`.
    Put,
    /// `PATCH`.
    Patch,
    /// `DELETE`.
    Delete,
}

/// The answer that is expected.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("asks_nothing" = ["status", "body"]))]
pub struct ServeAnswer {
    /// The status.
    #[schemars(range(min = 100, max = 599))]
    pub status: u16,
    /// The body: a text is compared with the whole of it, anything else is JSON that must be in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
}

impl Default for ServeAnswer {
    fn default() -> Self {
        Self { status: 200, body: None }
    }
}

impl ServeSpec {
    /// The names of its secrets, by the variables that they become; validation refuses what is neither.
    pub fn secrets(&self) -> BTreeMap<String, String> {
        let pairs = self.secrets.iter().filter_map(|text| variable::secret(text).ok());
        pairs.map(|(name, variable)| (variable, name)).collect()
    }
}

impl ServeRequest {
    /// The method.
    pub fn method(&self) -> &'static str {
        match (self.method, &self.body) {
            (None, None) | (Some(ServeMethod::Get), _) => "GET",
            (None, Some(_)) | (Some(ServeMethod::Post), _) => "POST",
            (Some(ServeMethod::Put), _) => "PUT",
            (Some(ServeMethod::Patch), _) => "PATCH",
            (Some(ServeMethod::Delete), _) => "DELETE",
        }
    }
}

impl ServeAnswer {
    /// What is wrong with an answer; `None` if it is the expected one.
    pub fn fault(&self, status: u16, body: &str) -> Option<String> {
        if status != self.status {
            return Some(format!("the answer is {status}, not {}", self.status));
        }
        match self.body.as_ref()? {
            Value::String(text) if body.trim_end_matches('\n') == text.trim_end_matches('\n') => None,
            Value::String(_) => Some("the answer has another text".to_owned()),
            wanted => match serde_json::from_str::<Value>(body) {
                Err(_) => Some("the answer is not JSON".to_owned()),
                Ok(is) => missing(wanted, &is, "").map(|at| format!("the answer has another value{at}")),
            },
        }
    }
}

/// Where a value does not have what is wanted: every key of a map, all items of a list.
fn missing(wanted: &Value, is: &Value, at: &str) -> Option<String> {
    let here = || Some(if at.is_empty() { String::new() } else { format!(" at {}", at.trim_start_matches('.')) });
    match (wanted, is) {
        (Value::Object(wanted), Value::Object(is)) => wanted.iter().find_map(|(key, value)| {
            let at = format!("{at}.{key}");
            missing(value, is.get(key).unwrap_or(&Value::Null), &at)
        }),
        (Value::Array(wanted), Value::Array(is)) if wanted.len() == is.len() => wanted
            .iter()
            .zip(is)
            .enumerate()
            .find_map(|(index, (wanted, is))| missing(wanted, is, &format!("{at}[{index}]"))),
        // `1` and `1.0` are one number.
        (Value::Number(wanted), Value::Number(is)) if wanted.as_f64() == is.as_f64() => None,
        _ if wanted == is => None,
        _ => here(),
    }
}

fn default_name() -> String {
    DEFAULT_APPLICATION.to_owned()
}

fn root() -> String {
    "/".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_at_least_what_is_expected() {
        let fault = |expect: &str, status: u16, body: &str| {
            let expect: ServeAnswer = serde_yaml::from_str(expect).unwrap();
            expect.fault(status, body).unwrap_or_default()
        };
        for (expect, body) in [
            ("{}", "anything"),
            ("{body: soup}", "soup\n"),
            ("{body: {food: soup}}", r#"{"food": "soup", "more": 1}"#),
            ("{body: {scores: [1, 2.5]}}", r#"{"scores": [1.0, 2.5]}"#),
            ("{body: 3}", "3"),
        ] {
            assert_eq!(fault(expect, 200, body), "", "{expect}");
        }
        assert_eq!(fault("{}", 500, ""), "the answer is 500, not 200");
        assert_eq!(fault("{status: 404}", 404, ""), "");
        assert_eq!(fault("{body: soup}", 200, "stew"), "the answer has another text");
        assert_eq!(fault("{body: {food: soup}}", 200, "soup"), "the answer is not JSON");
        let other = fault("{body: {foods: [{name: soup}]}}", 200, r#"{"foods": [{"name": "stew"}]}"#);
        assert_eq!(other, "the answer has another value at foods[0].name");
        assert_eq!(fault("{body: [1]}", 200, "[1, 2]"), "the answer has another value");
    }
}
