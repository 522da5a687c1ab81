//! Remote control common to all stand-ins: fault rules and the request log, in the format of the testbed's fault proxy.

use std::time::Duration;

use serde_json::json;

use super::answer::{Answer, Ask};
use super::faults::{Faults, Rule};

/// A 400 of the control, with its reason.
pub(super) fn refused(because: impl std::fmt::Display) -> Answer {
    Answer::text(400, "text/plain", format!("{because}\n"))
}

/// Answers requests for `rules` and `log`; `None` for any other path.
pub(super) fn answer(faults: &mut Faults, ask: &Ask) -> Option<Answer> {
    let (method, path) = ask.route();
    Some(match (method, &path[..]) {
        ("GET", ["rules"]) => Answer::json(200, json!(faults.rules())),
        ("PUT", ["rules"]) => match serde_json::from_slice::<Vec<Rule>>(&ask.body) {
            Ok(rules) => faults.set(rules).map_or_else(refused, |()| Answer::empty(204)),
            Err(error) => refused(error),
        },
        ("DELETE", ["rules"]) => {
            // An empty list cannot fail to parse.
            let _ = faults.set(Vec::new());
            Answer::empty(204)
        }
        ("GET", ["log"]) => Answer::json(200, json!(faults.log)),
        ("DELETE", ["log"]) => {
            faults.log.clear();
            Answer::empty(204)
        }
        _ => return None,
    })
}

/// How far to move the clock, from a body such as `{"seconds": 7200}`.
pub(super) fn seconds(ask: &Ask) -> Result<Duration, Answer> {
    let seconds = ask.json().and_then(|body| body["seconds"].as_f64()).unwrap_or(0.0);
    Duration::try_from_secs_f64(seconds).map_err(refused)
}

/// Methods by which tests in this process control a stand-in that keeps its state in `shared`.
macro_rules! steering {
    ($sandbox:ty, $config:ty) => {
        impl $sandbox {
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
