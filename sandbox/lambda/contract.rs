//! The API contract: every request and every answer is compared with it; violations are recorded, and answers that
//! it does not declare are counted.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use regex::Regex;
use serde::Serialize;
use serde_json::Value;

use super::super::answer::{Answer, Ask, Body};
use super::schema::{Problem, ProblemKind, Schemas, patterns};

/// Facts from the official document: paths, fields, types, enumerations.
const FACTS: &str = include_str!("contract.json");

/// The contract, parsed.
#[derive(Debug)]
pub(super) struct Contract {
    pub(super) root: Value,
    patterns: BTreeMap<String, Regex>,
}

/// An operation of the document.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operation<'a>(&'a Value);

impl<'a> Operation<'a> {
    /// Name of the error schema for a status; the first, when there are several.
    pub(super) fn error(self, status: u16) -> Option<&'a str> {
        let responses = &self.0["responses"];
        let schema = &responses[status.to_string()]["content"]["application/json"]["schema"]["properties"]["error"];
        let first = if schema["anyOf"].is_array() { &schema["anyOf"][0] } else { schema };
        first["$ref"].as_str()?.rsplit('/').next()
    }
}

impl Contract {
    /// The contract of all stand-ins in this process.
    pub(super) fn shared() -> &'static Self {
        static SHARED: OnceLock<Contract> = OnceLock::new();
        SHARED.get_or_init(|| {
            // A test parses it; if this failed, everything would be a violation, which no test passes.
            let root: Value = serde_json::from_str(FACTS).unwrap_or_default();
            let mut found = BTreeMap::new();
            patterns(&root, &mut found);
            Self { root, patterns: found }
        })
    }

    /// The operation of a method and path; a literal path has priority over one with an id.
    pub(super) fn operation(&self, method: &str, path: &str) -> Option<Operation<'_>> {
        let paths = self.root["paths"].as_object()?;
        let item = paths.get(path).or_else(|| {
            let (above, id) = path.rsplit_once('/')?;
            if id.is_empty() { None } else { paths.get(&format!("{above}/{{id}}")) }
        })?;
        item.get(method.to_lowercase()).map(Operation)
    }

    /// Violations of the contract by a request.
    pub(super) fn of_request(&self, operation: Operation<'_>, ask: &Ask) -> Vec<Problem> {
        let mut found = Vec::new();
        let mut wrong = |text: String| found.push(Problem { kind: ProblemKind::Other, text });
        let parameters = operation.0["parameters"].as_array();
        for (name, _) in &ask.query {
            let is_known =
                parameters.into_iter().flatten().any(|known| known["in"] == "query" && known["name"] == **name);
            if !is_known {
                wrong(format!("the parameter `{name}` is not known"));
            }
        }
        let schema = &operation.0["requestBody"]["content"]["application/json"]["schema"];
        match (schema.is_object(), ask.body.is_empty()) {
            (false, true) => {}
            (false, false) => wrong("it has a body".to_owned()),
            (true, _) => match ask.json() {
                None => wrong("the body is not JSON".to_owned()),
                Some(body) => found.extend(self.schemas().check(schema, &body)),
            },
        }
        found
    }

    /// Violations of the contract by an answer.
    pub(super) fn of_answer(&self, operation: Operation<'_>, status: u16, body: Option<&Value>) -> Vec<Problem> {
        let wrong = |text: String| vec![Problem { kind: ProblemKind::Other, text }];
        let schema = &operation.0["responses"][&status.to_string()]["content"]["application/json"]["schema"];
        match (schema.is_object(), body) {
            (false, _) => wrong(format!("the status {status} is not declared")),
            (true, None) => wrong("the body is not JSON".to_owned()),
            (true, Some(body)) => self.schemas().check(schema, body),
        }
    }

    fn schemas(&self) -> Schemas<'_> {
        Schemas { root: &self.root, patterns: &self.patterns }
    }
}

/// A kind of answer that the contract does not declare, and Lambda gives all the same. Any other deviation from the
/// contract is a bug of the stand-in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Undeclared {
    /// 429: the document's text states the limits, but not the answer.
    TooManyRequests,
    /// 5xx with an error in the document's format; the document has the error, but not the status.
    ServerError,
    /// An HTML page of a proxy in front, with any status.
    Html,
    /// A body that is truncated JSON, or not JSON.
    Malformed,
    /// A code that begins with `provider/`: in the document's text, but in no schema.
    ProviderError,
    /// A path that is not in the document.
    UnknownPath,
    /// Fields that are not in the document's schema; its own examples show one.
    UnknownField,
    /// A value that is not in an enumeration.
    UnknownValue,
}

impl Undeclared {
    /// All kinds.
    pub const ALL: [Self; 8] = [
        Self::TooManyRequests,
        Self::ServerError,
        Self::Html,
        Self::Malformed,
        Self::ProviderError,
        Self::UnknownPath,
        Self::UnknownField,
        Self::UnknownValue,
    ];

    /// Name in [`Validated::undeclared`].
    pub fn name(self) -> &'static str {
        match self {
            Self::TooManyRequests => "429",
            Self::ServerError => "5xx",
            Self::Html => "HTML",
            Self::Malformed => "malformed",
            Self::ProviderError => "provider/*",
            Self::UnknownPath => "unknown path",
            Self::UnknownField => "unknown field",
            Self::UnknownValue => "unknown value",
        }
    }

    /// Classifies an answer by status and body; `None` for most.
    pub(super) fn of(status: u16, body: Option<&Value>, text: &str) -> Option<Self> {
        let code = body.and_then(|body| body.pointer("/error/code")).and_then(Value::as_str).unwrap_or_default();
        match (status, body) {
            (429, _) => Some(Self::TooManyRequests),
            (_, None) if text.trim_start().starts_with('<') => Some(Self::Html),
            (500.., _) => Some(Self::ServerError),
            (_, None) => Some(Self::Malformed),
            (_, Some(_)) => code.starts_with("provider/").then_some(Self::ProviderError),
        }
    }
}

/// A request or an answer that violates the contract.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// `request` or `answer`.
    pub of: &'static str,
    /// Method and path of the request.
    pub call: String,
    /// The violations, each with its place in the body.
    pub what: Vec<String>,
}

impl fmt::Display for Violation {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "the {} of {}: {}", self.of, self.call, self.what.join("; "))
    }
}

/// Counts of the comparisons with the contract.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Validated {
    /// Number of requests.
    pub requests: u64,
    /// Number of answers, without the undeclared ones.
    pub answers: u64,
    /// Number of answers that the contract does not declare, by the name of their [`Undeclared`] kind.
    pub undeclared: BTreeMap<&'static str, u64>,
    /// Number of requests and answers that violate the contract.
    pub violations: u64,
}

impl fmt::Display for Validated {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named: Vec<String> = self.undeclared.iter().map(|(name, count)| format!("{name}: {count}")).collect();
        let named = if named.is_empty() { "none".to_owned() } else { named.join(", ") };
        write!(
            to,
            "{} requests and {} answers compared with the contract, {} violations; undeclared ({named})",
            self.requests, self.answers, self.violations
        )
    }
}

static REQUESTS: AtomicU64 = AtomicU64::new(0);
static ANSWERS: AtomicU64 = AtomicU64::new(0);
static VIOLATIONS: AtomicU64 = AtomicU64::new(0);
static UNDECLARED: [AtomicU64; Undeclared::ALL.len()] = [const { AtomicU64::new(0) }; Undeclared::ALL.len()];

/// Counts of all stand-ins in this process so far.
pub fn totals() -> Validated {
    let counted = Undeclared::ALL.iter().zip(&UNDECLARED).map(|(of, count)| (of.name(), count.load(Ordering::Relaxed)));
    Validated {
        requests: REQUESTS.load(Ordering::Relaxed),
        answers: ANSWERS.load(Ordering::Relaxed),
        undeclared: counted.filter(|(_, count)| *count > 0).collect(),
        violations: VIOLATIONS.load(Ordering::Relaxed),
    }
}

/// Counts and violations of one stand-in.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) validated: Validated,
    pub(super) violations: Vec<Violation>,
}

impl Ledger {
    /// Compares a request; returns its violations if it must be refused for them.
    pub(super) fn request(&mut self, ask: &Ask, path: &str) -> Option<String> {
        let contract = Contract::shared();
        self.validated.requests += 1;
        REQUESTS.fetch_add(1, Ordering::Relaxed);
        let Some(operation) = contract.operation(&ask.method, path) else {
            self.violate("request", ask, path, vec!["the document has no such path".to_owned()]);
            return None;
        };
        let problems = contract.of_request(operation, ask);
        if problems.is_empty() {
            return None;
        }
        let what: Vec<String> = problems.into_iter().map(|problem| problem.text).collect();
        let text = what.join("; ");
        self.violate("request", ask, path, what);
        Some(text)
    }

    /// Compares an answer; `on_purpose` lists deviations that are not violations.
    pub(super) fn answer(&mut self, ask: &Ask, path: &str, answer: &Answer, on_purpose: &[Undeclared]) {
        let (body, text) = match &answer.body {
            Some(Body::Json(value)) => (Some(value.clone()), String::new()),
            Some(Body::Text(_, text)) => (serde_json::from_str(text).ok(), text.clone()),
            None => (None, String::new()),
        };
        let Some(operation) = Contract::shared().operation(&ask.method, path) else {
            self.name(Undeclared::UnknownPath);
            return;
        };
        if let Some(named) = Undeclared::of(answer.status, body.as_ref(), &text) {
            self.name(named);
            return;
        }
        let mut problems = Contract::shared().of_answer(operation, answer.status, body.as_ref());
        for (kind, named) in [
            (ProblemKind::UnknownField, Undeclared::UnknownField),
            (ProblemKind::UnknownValue, Undeclared::UnknownValue),
        ] {
            if on_purpose.contains(&named) && problems.iter().any(|problem| problem.kind == kind) {
                problems.retain(|problem| problem.kind != kind);
                self.name(named);
            }
        }
        self.validated.answers += 1;
        ANSWERS.fetch_add(1, Ordering::Relaxed);
        if !problems.is_empty() {
            self.violate("answer", ask, path, problems.into_iter().map(|problem| problem.text).collect());
        }
    }

    fn name(&mut self, of: Undeclared) {
        *self.validated.undeclared.entry(of.name()).or_default() += 1;
        if let Some(at) = Undeclared::ALL.iter().position(|known| *known == of) {
            UNDECLARED[at].fetch_add(1, Ordering::Relaxed);
        }
    }

    fn violate(&mut self, of: &'static str, ask: &Ask, path: &str, what: Vec<String>) {
        self.validated.violations += 1;
        VIOLATIONS.fetch_add(1, Ordering::Relaxed);
        self.violations.push(Violation { of, call: format!("{} {path}", ask.method), what });
    }
}
