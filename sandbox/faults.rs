//! Trouble on purpose, and what was asked. The fault proxy of the testbed takes the same rules.

use std::collections::BTreeMap;
use std::time::Duration;

use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::answer::Answer;
use crate::error::{Error, ErrorKind, Result};

/// Which requests meet which trouble.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// The method; absent for any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// A regular expression on the path with the service's prefix: `^/reservation/v1/leases$`.
    pub path: String,
    /// So many matching requests are let through first.
    #[serde(default)]
    pub skip: u32,
    /// So many then meet the trouble.
    #[serde(default = "once")]
    pub count: u32,
    /// `status:429`, `html:502`, `delay:1.5`, `cut-before`, `cut-after`, `malformed`, `token-expire`; `after:500` and `after-html:502` act, and
    /// then answer so.
    pub fault: String,
    /// Headers of the answer that the trouble gives.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The body of it; absent for one as the services give it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
}

fn once() -> u32 {
    1
}

impl Rule {
    /// A rule for the next request of this kind.
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

    /// The same, for so many requests.
    #[must_use]
    pub fn times(mut self, count: u32) -> Self {
        self.count = count;
        self
    }

    /// The same, after so many were let through.
    #[must_use]
    pub fn skipping(mut self, skip: u32) -> Self {
        self.skip = skip;
        self
    }

    /// The same, with this body.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<String>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// The same, with this header.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.insert(name.to_owned(), value.to_owned());
        self
    }

    /// An answer with the few headers that trouble comes with.
    pub(super) fn onto(&self, mut answer: Answer) -> Answer {
        for (name, value) in &self.headers {
            let known = ["retry-after", "location", "content-type"];
            if let Some(name) = known.into_iter().find(|known| known.eq_ignore_ascii_case(name)) {
                answer.headers.push((name, value.clone()));
            }
        }
        answer
    }
}

/// A trouble.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Fault {
    /// Answered so, without an effect.
    Status(u16),
    /// Acted, and answered so.
    After(u16),
    /// A page of a proxy in front, without an effect.
    Html(u16),
    /// Acted, and a page of a proxy in front.
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

/// One request that was answered, or was not.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LogEntry {
    /// The method.
    pub method: String,
    /// The path with the service's prefix, without the query.
    pub path: String,
    /// The query; empty for none.
    pub query: String,
    /// What was answered; 0 when the connection was cut.
    pub status: u16,
    /// The trouble that it met.
    pub fault: Option<String>,
    /// When, by the stand-in's clock.
    pub at: jiff::Timestamp,
    /// The headers that shape the answer; no token.
    pub headers: BTreeMap<String, String>,
    /// The body as JSON, secrets masked.
    pub body: Option<Value>,
}

/// The rules, and the record.
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
    /// Takes these rules in the place of those there are.
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

    /// The trouble that this request meets.
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
            .because(format!("`{}` is no fault", rule.fault))
            .hint("status:429, after:500, html:502, after-html:502, delay:2, cut-before, cut-after, malformed or token-expire")
    })?;
    Ok(Live { path, fault, rule, seen: 0 })
}
