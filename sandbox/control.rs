//! Remote control common to all stand-ins: fault rules, the request log and the clock. Rules and log have the format of
//! the testbed's fault proxy.

use std::time::Duration;

use serde_json::json;

use super::answer::{Answer, Ask};
use super::faults::Rule;
use super::shared::StandIn;

/// A 400 of the control, with its reason.
pub(super) fn refused(because: impl std::fmt::Display) -> Answer {
    Answer::text(400, "text/plain", format!("{because}\n"))
}

/// Answers a request to the control.
pub(super) fn answer<T: StandIn>(state: &mut T, ask: &Ask) -> Answer {
    let (method, path) = ask.route();
    match (method, &path[..]) {
        ("GET", ["rules"]) => Answer::json(200, json!(state.faults().rules())),
        ("PUT", ["rules"]) => match serde_json::from_slice::<Vec<Rule>>(&ask.body) {
            Ok(rules) => state.faults().set(rules).map_or_else(refused, |()| Answer::empty(204)),
            Err(error) => refused(error),
        },
        ("DELETE", ["rules"]) => {
            // An empty list cannot fail to parse.
            let _ = state.faults().set(Vec::new());
            Answer::empty(204)
        }
        ("GET", ["log"]) => Answer::json(200, json!(state.faults().log)),
        ("DELETE", ["log"]) => {
            state.faults().log.clear();
            Answer::empty(204)
        }
        ("POST", ["advance"]) => match seconds(ask) {
            Ok(by) => {
                state.clock().advance(by);
                state.advance();
                Answer::empty(204)
            }
            Err(refused) => refused,
        },
        _ => state.control(ask),
    }
}

/// How far to move the clock, from a body such as `{"seconds": 7200}`.
fn seconds(ask: &Ask) -> Result<Duration, Answer> {
    let seconds = ask.json().and_then(|body| body["seconds"].as_f64()).unwrap_or(0.0);
    Duration::try_from_secs_f64(seconds).map_err(refused)
}

/// Methods by which tests in this process control a stand-in that keeps its state in `shared`.
macro_rules! steering {
    ($sandbox:ty, $config:ty) => {
        impl $sandbox {
            /// URL of the control, for other processes.
            pub fn control_url(&self) -> String {
                format!("{}/control", self.base)
            }

            /// The secret that requests to the control carry in [`CONTROL_HEADER`](super::CONTROL_HEADER).
            pub fn control_secret(&self) -> &str {
                self.shared.door().secret()
            }

            /// Port on the loopback; 0 for none.
            pub fn port(&self) -> u16 {
                self.shared.door().port()
            }

            /// Replaces the fault rules. Fails on a rule that cannot be parsed, and keeps the old ones then.
            pub fn faults(&self, rules: Vec<Rule>) -> Result<()> {
                self.shared.state().faults.set(rules)
            }

            /// Adds one fault rule. Fails when it cannot be parsed.
            pub fn fault(&self, rule: Rule) -> Result<()> {
                self.shared.state().faults.add(rule)
            }

            /// All logged requests, with the status of each answer.
            pub fn log(&self) -> Vec<LogEntry> {
                self.shared.state().faults.log.clone()
            }

            /// Clears the request log.
            pub fn forget_log(&self) {
                self.shared.state().faults.log.clear();
            }

            /// The current time of the stand-in's clock.
            pub fn now(&self) -> Timestamp {
                self.shared.state().now()
            }

            /// Moves the clock forward and applies everything that becomes due.
            pub fn advance(&self, by: Duration) {
                self.shared.state().clock.advance(by);
                drop(self.shared.state());
            }

            /// Changes the configuration of the running stand-in: bugs, quotas, times.
            pub fn change(&self, change: impl FnOnce(&mut $config)) {
                change(&mut self.shared.state().config);
            }
        }
    };
}
pub(super) use steering;
