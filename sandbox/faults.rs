//! Injected faults, and the request log. The testbed's fault proxy takes the same rules.

use std::collections::BTreeMap;
use std::time::Duration;

use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::answer::{Answer, Ask, Body};
use crate::error::{Error, ErrorKind, Result};

/// A fault rule: which requests meet which fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// HTTP method; absent for any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Regular expression for the path with the service's prefix: `^/reservation/v1/leases$`.
    pub path: String,
    /// Number of matching requests to let through first.
    #[serde(default)]
    pub skip: u32,
    /// Number of requests that then meet the fault; default 1.
    #[serde(default = "once")]
    pub count: u32,
    /// `status:429`, `html:502`, `delay:1.5`, `cut-before`, `cut-after`, `malformed`, `token-expire`; `after:500` and
    /// `after-html:502` act, and then answer with that status.
    pub fault: String,
    /// Headers of the faulty answer: `Retry-After`, `Location` or `Content-Type`; others are ignored.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Body of the faulty answer; absent for the one that the service would send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
}

fn once() -> u32 {
    1
}

impl Rule {
    /// A rule for the next request with this method and path expression.
    pub fn new(method: &str, path: &str, fault: &str) -> Self {
        Self {
            method: Some(method.to_owned()),
            path: path.to_owned(),
            skip: 0,
            count: 1,
            fault: fault.to_owned(),
            headers: BTreeMap::new(),
            body: None,
        }
    }

    /// Applies the fault to `count` requests.
    #[must_use]
    pub fn times(mut self, count: u32) -> Self {
        self.count = count;
        self
    }

    /// Lets `skip` requests through first.
    #[must_use]
    pub fn skipping(mut self, skip: u32) -> Self {
        self.skip = skip;
        self
    }

    /// Sets the body of the faulty answer.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<String>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// Adds a header to the faulty answer.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.insert(name.to_owned(), value.to_owned());
        self
    }

    /// The answer of a proxy in front, with this status.
    fn page(&self, status: u16) -> Answer {
        self.onto(Answer::page(status, self.body.as_deref()))
    }

    /// The answer of a failing service, or of a proxy in front of it when the service has none with this status.
    fn failure(&self, status: u16, error: impl FnOnce(u16) -> Option<Answer>) -> Answer {
        match &self.body {
            Some(body) => self.onto(Answer::text(status, "application/json", body.clone())),
            None => error(status).map_or_else(|| self.page(status), |answer| self.onto(answer)),
        }
    }

    /// Adds the rule's headers to an answer; only three names are supported.
    fn onto(&self, mut answer: Answer) -> Answer {
        for (name, value) in &self.headers {
            let known = ["retry-after", "location", "content-type"];
            if let Some(name) = known.into_iter().find(|known| known.eq_ignore_ascii_case(name)) {
                answer.headers.push((name, value.clone()));
            }
        }
        answer
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Fault {
    /// Answers with this status, without acting.
    Status(u16),
    /// Acts, then answers with this status.
    After(u16),
    /// Answers with a proxy's error page, without acting.
    Html(u16),
    /// Acts, then answers with a proxy's error page.
    AfterHtml(u16),
    Delay(Duration),
    CutBefore,
    CutAfter,
    Malformed,
    TokenExpire,
}

impl Fault {
    fn read(text: &str) -> Option<Self> {
        let (name, value) = text.split_once(':').unwrap_or((text, ""));
        let status = || value.parse().ok().filter(|status| (200..600).contains(status));
        Some(match name {
            "status" => Self::Status(status()?),
            "after" => Self::After(status()?),
            "html" => Self::Html(status()?),
            "after-html" => Self::AfterHtml(status()?),
            "delay" => Self::Delay(Duration::try_from_secs_f64(value.parse().ok()?).ok()?),
            "cut-before" => Self::CutBefore,
            "cut-after" => Self::CutAfter,
            "malformed" => Self::Malformed,
            "token-expire" => Self::TokenExpire,
            _ => return None,
        })
    }
}

/// Answers a request with the fault that it meets; `None` cuts the connection.
///
/// `act` carries the request out, `error` is the service's own error with a status, and `broken` what is left of a
/// malformed answer.
pub(super) fn meet(
    met: Option<&(Rule, Fault)>,
    act: impl FnOnce() -> Answer,
    error: impl FnOnce(u16) -> Option<Answer>,
    broken: impl FnOnce(&Answer) -> String,
) -> Option<Answer> {
    let Some((rule, fault)) = met else { return Some(act()) };
    match *fault {
        Fault::Status(status) => Some(rule.failure(status, error)),
        Fault::After(status) => {
            act();
            Some(rule.failure(status, error))
        }
        Fault::Html(status) => Some(rule.page(status)),
        Fault::AfterHtml(status) => {
            act();
            Some(rule.page(status))
        }
        Fault::CutBefore => None,
        Fault::CutAfter => {
            act();
            None
        }
        Fault::Malformed => {
            let real = act();
            let text = rule.body.clone().unwrap_or_else(|| broken(&real));
            Some(Answer { body: Some(Body::Text("application/json", text)), ..real })
        }
        Fault::Delay(_) | Fault::TokenExpire => Some(act()),
    }
}

/// One logged request, answered or cut.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LogEntry {
    /// HTTP method.
    pub method: String,
    /// Path with the service's prefix, without the query.
    pub path: String,
    /// Decoded query, `a=b&c=d`; empty for none.
    pub query: String,
    /// Status of the answer; 0 when the connection was cut.
    pub status: u16,
    /// The fault that it met, as the rule writes it.
    pub fault: Option<String>,
    /// Time by the stand-in's clock.
    pub at: jiff::Timestamp,
    /// The headers that affect the answer; never a token.
    pub headers: BTreeMap<String, String>,
    /// The body as JSON, with secrets masked.
    pub body: Option<Value>,
}

impl LogEntry {
    /// The entry of a cut request: with these of its headers, and with these places of its body masked.
    pub(super) fn of(ask: &Ask, path: &str, at: jiff::Timestamp, headers: &[&str], secrets: &[&str]) -> Self {
        let sent = |name: &&str| Some(((*name).to_owned(), ask.header(name)?.to_owned()));
        Self {
            method: ask.method.clone(),
            path: path.to_owned(),
            query: ask.query.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join("&"),
            status: 0,
            fault: None,
            at,
            headers: headers.iter().filter_map(sent).collect(),
            body: ask.json().map(|body| masked(body, secrets)),
        }
    }
}

fn masked(mut body: Value, secrets: &[&str]) -> Value {
    for secret in secrets {
        if let Some(value) = body.pointer_mut(secret) {
            *value = Value::String("***".to_owned());
        }
    }
    body
}

/// The fault rules, and the request log.
#[derive(Debug, Default)]
pub(super) struct Faults {
    rules: Vec<Live>,
    pub(super) log: Vec<LogEntry>,
}

#[derive(Debug)]
struct Live {
    rule: Rule,
    path: Regex,
    fault: Fault,
    seen: u32,
}

impl Faults {
    /// Replaces all rules; keeps the old ones when a new one cannot be parsed.
    pub(super) fn set(&mut self, rules: Vec<Rule>) -> Result<()> {
        let live: Result<Vec<Live>> = rules.into_iter().map(live).collect();
        self.rules = live?;
        Ok(())
    }

    pub(super) fn add(&mut self, rule: Rule) -> Result<()> {
        self.rules.push(live(rule)?);
        Ok(())
    }

    pub(super) fn rules(&self) -> Vec<Rule> {
        self.rules.iter().map(|live| live.rule.clone()).collect()
    }

    /// Counts a request, and returns the fault that it meets.
    pub(super) fn take(&mut self, method: &str, path: &str) -> Option<(Rule, Fault)> {
        let mut met = None;
        for live in &mut self.rules {
            let is_meant = live.rule.method.as_deref().is_none_or(|asked| asked.eq_ignore_ascii_case(method));
            if met.is_some() || !is_meant || !live.path.is_match(path) {
                continue;
            }
            live.seen = live.seen.saturating_add(1);
            if live.seen > live.rule.skip && live.seen - live.rule.skip <= live.rule.count {
                met = Some((live.rule.clone(), live.fault));
            }
        }
        met
    }
}

fn live(rule: Rule) -> Result<Live> {
    let doing = || format!("read the fault rule for {}", rule.path);
    let path = Regex::new(&rule.path).map_err(|error| Error::new(ErrorKind::Usage, doing()).because(error))?;
    let fault = Fault::read(&rule.fault).ok_or_else(|| {
        Error::new(ErrorKind::Usage, doing())
            .because(format!("`{}` is not a fault", rule.fault))
            .hint("status:429, after:500, html:502, after-html:502, delay:2, cut-before, cut-after, malformed or token-expire")
    })?;
    Ok(Live { path, fault, rule, seen: 0 })
}
