//! The HTTP handler: authentication, rate limits, comparison with the contract, injected faults, dispatch.

use std::collections::BTreeMap;

use axum::body::Body as HttpBody;
use axum::extract::connect_info::ConnectInfo;
use axum::http::{Request, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::super::answer::{Answer, Ask, Body, read};
use super::super::clock::http;
use super::super::door::{CONTROL, is_same};
use super::super::faults::{Fault, LogEntry, Rule};
use super::super::wire::Wire;
use super::config::{TooFast, User};
use super::keys::{Pair, make_pair};
use super::refusal::{Refusal, declared};
use super::state::{Shared, State};
use super::undeclared::Undeclared;

/// A request being processed.
struct Call<'a> {
    ask: &'a Ask,
    path: &'a str,
    met: Option<(Rule, Fault)>,
    /// A new key pair, for a request to add a key without a public key.
    pair: Option<Pair>,
    /// How the request violates the contract.
    wrong: Option<String>,
}

/// An admitted request: its user, its fault, and its violations of the contract.
struct Admitted {
    user: User,
    met: Option<(Rule, Fault)>,
    wrong: Option<String>,
}

/// Answers one request.
pub(super) async fn answer(
    axum::extract::State(shared): axum::extract::State<Shared>,
    request: Request<HttpBody>,
) -> Response<HttpBody> {
    let (parts, body) = request.into_parts();
    if let Some(refused) = shared.door().refuses(&parts) {
        return refused.into_response(None);
    }
    let (service, ask) = read(&parts, body).await;
    let path = parts.uri.path().to_owned();
    if service == CONTROL {
        return super::control::answer(&shared, &ask).into_response(None);
    }
    let admitted = shared.state().admitted(&ask, &path);
    let (answer, is_cut) = match admitted {
        Err(refused) => {
            shared.state().record(&ask, &path, Some(refused.status), None);
            (refused, false)
        }
        Ok(Admitted { user, met, wrong }) => {
            if let Some((_, Fault::Delay(delay))) = &met {
                tokio::time::sleep(*delay).await;
            }
            let needs_pair = (ask.method.as_str(), path.as_str()) == ("POST", "/api/v1/ssh-keys")
                && ask.json().is_some_and(|body| body["public_key"].is_null());
            let pair = if needs_pair { make_pair().await.ok() } else { None };
            shared.state().meet(user, Call { ask: &ask, path: &path, met, pair, wrong })
        }
    };
    let date = http(shared.state().now());
    if !is_cut {
        return answer.into_response(Some(date));
    }
    match parts.extensions.get::<ConnectInfo<Wire>>() {
        Some(ConnectInfo(wire)) => {
            wire.cut();
            answer.into_response(Some(date))
        }
        // Without a connection, the body fails instead.
        None => {
            let broken = futures_util::stream::once(async { Err::<Vec<u8>, _>(std::io::Error::other("cut")) });
            Response::new(HttpBody::from_stream(broken))
        }
    }
}

impl State {
    /// Admits a request with its fault; refuses it if it is unauthorized or too fast.
    fn admitted(&mut self, ask: &Ask, path: &str) -> Result<Admitted, Answer> {
        let wrong = self.ledger.request(ask, path);
        let user = self.user_of(ask);
        let refused = match user {
            None => Some(Refusal::Unauthorized.plain()),
            Some(user) if self.is_inactive(user) => Some(Refusal::AccountInactive.plain()),
            Some(_) => self.too_fast(path),
        };
        match (user, refused) {
            (Some(user), None) => Ok(Admitted { user, met: self.faults.take(&ask.method, path), wrong }),
            (_, refused) => {
                let refused = refused.unwrap_or_else(|| Refusal::Unauthorized.plain());
                self.ledger.answer(ask, path, &refused, &[]);
                Err(refused)
            }
        }
    }

    /// The user of an API key: `Bearer KEY`, or `Basic` with the key as the user and an empty password.
    fn user_of(&self, ask: &Ask) -> Option<User> {
        let (scheme, value) = ask.header("authorization")?.split_once(' ')?;
        let key = match scheme.to_lowercase().as_str() {
            "bearer" => value.to_owned(),
            "basic" => String::from_utf8(STANDARD.decode(value.trim()).ok()?).ok()?.strip_suffix(':')?.to_owned(),
            _ => return None,
        };
        self.api_keys.iter().find(|(known, _)| is_same(&key, known)).map(|(_, user)| *user)
    }

    fn too_fast(&mut self, path: &str) -> Option<Answer> {
        let now = self.now();
        let less = |every: std::time::Duration| every.saturating_sub(self.config.slack);
        let (every, launch_every) = (less(self.config.request_every), less(self.config.launch_every));
        let is_launch = path == "/api/v1/instance-operations/launch";
        let wait = self.limiter.take(now, is_launch, every, launch_every)?;
        match self.config.too_fast {
            TooFast::Counted => None,
            TooFast::Refused { retry_after } => {
                let answer = too_many();
                let seconds = (wait + self.config.slack).as_secs_f64().ceil();
                Some(if retry_after { answer.with("retry-after", format!("{seconds}")) } else { answer })
            }
        }
    }

    /// Answers with the fault that is due; returns whether to cut the connection.
    fn meet(&mut self, user: User, call: Call<'_>) -> (Answer, bool) {
        let fault = call.met.as_ref().map(|(_, fault)| *fault);
        let rule = call.met.as_ref().map(|(rule, _)| rule.clone());
        if fault == Some(Fault::TokenExpire) {
            self.api_keys.retain(|_, of| *of != user);
        }
        let (answer, is_cut) = match (fault, &rule) {
            (Some(Fault::Status(status)), Some(rule)) => (troubled(&call, status, rule), false),
            (Some(Fault::Html(status)), Some(rule)) => (page(status, rule), false),
            (Some(Fault::CutBefore), _) => (Answer::empty(502), true),
            (Some(Fault::TokenExpire), _) => (Refusal::Unauthorized.plain(), false),
            (Some(Fault::After(status)), Some(rule)) => {
                self.checked(user, &call);
                (troubled(&call, status, rule), false)
            }
            (Some(Fault::AfterHtml(status)), Some(rule)) => {
                self.checked(user, &call);
                (page(status, rule), false)
            }
            (Some(Fault::CutAfter), _) => (self.checked(user, &call), true),
            (Some(Fault::Malformed), Some(rule)) => (cut_short(self.checked(user, &call), rule), false),
            _ => (self.checked(user, &call), false),
        };
        if !is_cut {
            let on_purpose = [Undeclared::UnknownField, Undeclared::UnknownValue];
            let knows_more = self.config.unknown_fields || self.instances.iter().any(|instance| instance.is_strange);
            self.ledger.answer(call.ask, call.path, &answer, if knows_more { &on_purpose } else { &[] });
        }
        let status = (!is_cut).then_some(answer.status);
        self.record(call.ask, call.path, status, rule.map(|rule| rule.fault));
        (answer, is_cut)
    }

    /// Carries out the request if it keeps to the contract.
    fn checked(&mut self, user: User, call: &Call<'_>) -> Answer {
        match &call.wrong {
            Some(text) => Refusal::InvalidParameters.says(format!("Invalid request data: {text}.")),
            None => self.dispatch(user, call),
        }
    }

    fn dispatch(&mut self, user: User, call: &Call<'_>) -> Answer {
        let body = call.ask.json().unwrap_or_default();
        let path: Vec<&str> = call.ask.path.iter().map(String::as_str).collect();
        let ["v1", path @ ..] = &path[..] else { return Refusal::NotFound.plain() };
        match (call.ask.method.as_str(), path) {
            ("GET", ["instances"]) => self.list_instances(call.ask),
            ("GET", ["instances", id]) => self.get_instance(id),
            ("POST", ["instances", id]) => self.rename_instance(id, &body),
            ("GET", ["instance-types"]) => self.list_types(),
            ("POST", ["instance-operations", "launch"]) => self.launch(&body),
            ("POST", ["instance-operations", "restart"]) => self.restart(&body),
            ("POST", ["instance-operations", "terminate"]) => self.terminate(&body),
            ("GET", ["ssh-keys"]) => self.list_keys(),
            ("POST", ["ssh-keys"]) => self.add_key(&body, call.pair.clone()),
            ("DELETE", ["ssh-keys", id]) => self.delete_key(id),
            ("GET", ["file-systems"]) => self.list_file_systems(),
            ("POST", ["filesystems"]) => self.add_file_system(&body, user),
            ("DELETE", ["filesystems", id]) => self.delete_file_system(id),
            ("GET", ["images"]) => self.list_images(),
            ("GET", ["regions"]) => self.list_regions(),
            ("GET", ["firewall-rules"]) => self.list_rules(),
            ("PUT", ["firewall-rules"]) => self.set_rules(&body),
            ("GET", ["firewall-rulesets"]) => self.list_rulesets(),
            ("POST", ["firewall-rulesets"]) => self.add_ruleset(&body),
            ("GET", ["firewall-rulesets", "global"]) => self.global_ruleset(),
            ("PATCH", ["firewall-rulesets", "global"]) => self.set_global_ruleset(&body),
            ("GET", ["firewall-rulesets", id]) => self.get_ruleset(id),
            ("PATCH", ["firewall-rulesets", id]) => self.change_ruleset(id, &body),
            ("DELETE", ["firewall-rulesets", id]) => self.delete_ruleset(id),
            _ => Refusal::NotFound.plain(),
        }
    }

    fn record(&mut self, ask: &Ask, path: &str, status: Option<u16>, fault: Option<String>) {
        let at = self.now();
        let headers = ["accept", "content-type", "user-agent"];
        let sent = |name: &&str| Some(((*name).to_owned(), ask.header(name)?.to_owned()));
        self.faults.log.push(LogEntry {
            method: ask.method.clone(),
            path: path.to_owned(),
            query: ask.query.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join("&"),
            status: status.unwrap_or(0),
            fault,
            at,
            headers: headers.iter().filter_map(sent).collect::<BTreeMap<_, _>>(),
            body: ask.json().map(masked),
        });
    }
}

/// Masks the user data, which contains a host's private key.
fn masked(mut body: Value) -> Value {
    if let Some(value) = body.pointer_mut("/user_data") {
        *value = Value::String("***".to_owned());
    }
    body
}

/// The error of a failing service, or of a proxy in front of it.
fn troubled(call: &Call<'_>, status: u16, rule: &Rule) -> Answer {
    let answer = match (&rule.body, status) {
        (Some(body), _) => Answer::text(status, "application/json", body.clone()),
        (None, 429) => too_many(),
        (None, 500) => Refusal::Internal.plain(),
        (None, _) => match declared(&call.ask.method, call.path, status) {
            Some(answer) => answer,
            None => return page(status, rule),
        },
    };
    rule.onto(answer)
}

/// The answer to too many requests; the document does not show its format.
fn too_many() -> Answer {
    Answer::text(429, "text/plain", "Too Many Requests\n")
}

fn page(status: u16, rule: &Rule) -> Answer {
    rule.onto(Answer::page(status, rule.body.as_deref()))
}

/// Half of the right body, or the body of the rule.
fn cut_short(real: Answer, rule: &Rule) -> Answer {
    let whole = match &real.body {
        Some(Body::Json(value)) => value.to_string(),
        Some(Body::Text(_, text)) => text.clone(),
        None => String::new(),
    };
    let half: String = whole.chars().take(whole.chars().count() / 2).collect();
    Answer { body: Some(Body::Text("application/json", rule.body.clone().unwrap_or(half))), ..real }
}
