//! Requests to the API: authentication, rate limits, comparison with the contract, injected faults, dispatch.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::super::answer::{Answer, Ask, Body};
use super::super::clock::Clock;
use super::super::door::is_same;
use super::super::faults::{self, Fault, Faults, LogEntry, Rule};
use super::super::shared::StandIn;
use super::config::{TooFast, User};
use super::contract::Undeclared;
use super::control;
use super::keys::{Pair, make_pair};
use super::refusal::{Refusal, declared};
use super::state::{Shared, State};

/// The logged headers: they affect an answer.
const HEADERS: [&str; 3] = ["accept", "content-type", "user-agent"];

/// Places of secrets in a body: the user data has a host's private key.
const SECRETS: [&str; 1] = ["/user_data"];

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

impl StandIn for State {
    fn clock(&mut self) -> &mut Clock {
        &mut self.clock
    }

    fn faults(&mut self) -> &mut Faults {
        &mut self.faults
    }

    fn advance(&mut self) {
        let now = self.now();
        self.advance_capacity(now);
        self.advance_instances(now);
    }

    fn control(&mut self, ask: &Ask) -> Answer {
        control::answer(self, ask)
    }

    async fn answer(shared: &Shared, _service: &str, ask: &Ask, path: &str) -> Option<Answer> {
        let admitted = shared.state().admitted(ask, path);
        let Admitted { user, met, wrong } = match admitted {
            Ok(admitted) => admitted,
            Err(refused) => return Some(refused),
        };
        if let Some((_, Fault::Delay(delay))) = &met {
            tokio::time::sleep(*delay).await;
        }
        let needs_pair = (ask.method.as_str(), path) == ("POST", "/api/v1/ssh-keys")
            && ask.json().is_some_and(|body| body["public_key"].is_null());
        let pair = if needs_pair { make_pair().await.ok() } else { None };
        shared.state().meet(user, Call { ask, path, met, pair, wrong })
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
                self.record(ask, path, Some(&refused), None);
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

    /// Answers with the fault that is due, and logs the request.
    fn meet(&mut self, user: User, call: Call<'_>) -> Option<Answer> {
        let answer = if let Some((_, Fault::TokenExpire)) = &call.met {
            self.api_keys.retain(|_, of| *of != user);
            Some(Refusal::Unauthorized.plain())
        } else {
            faults::meet(call.met.as_ref(), || self.checked(user, &call), |status| error(&call, status), half)
        };
        if let Some(answer) = &answer {
            let on_purpose = [Undeclared::UnknownField, Undeclared::UnknownValue];
            let knows_more = self.config.unknown_fields || self.instances.iter().any(|instance| instance.is_strange);
            self.ledger.answer(call.ask, call.path, answer, if knows_more { &on_purpose } else { &[] });
        }
        self.record(call.ask, call.path, answer.as_ref(), call.met.map(|(rule, _)| rule.fault));
        answer
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

    fn record(&mut self, ask: &Ask, path: &str, answer: Option<&Answer>, fault: Option<String>) {
        let entry = LogEntry::of(ask, path, self.now(), &HEADERS, &SECRETS);
        let status = answer.map_or(0, |answer| answer.status);
        self.faults.log.push(LogEntry { status, fault, ..entry });
    }
}

/// The error of the failing service; `None` for a status that only a proxy in front of it answers with.
fn error(call: &Call<'_>, status: u16) -> Option<Answer> {
    match status {
        429 => Some(too_many()),
        500 => Some(Refusal::Internal.plain()),
        _ => declared(&call.ask.method, call.path, status),
    }
}

/// The answer to too many requests; the document does not show its format.
fn too_many() -> Answer {
    Answer::text(429, "text/plain", "Too Many Requests\n")
}

/// The first half of an answer's body.
fn half(real: &Answer) -> String {
    let whole = match &real.body {
        Some(Body::Json(value)) => value.to_string(),
        Some(Body::Text(_, text)) => text.clone(),
        None => String::new(),
    };
    whole.chars().take(whole.chars().count() / 2).collect()
}
