//! What steers any stand-in from outside: the rules of its faults and the record of what was asked, as the testbed's fault proxy has them.

use std::time::Duration;

use serde_json::json;

use super::answer::{Answer, Ask};
use super::faults::{Faults, Rule};

/// A refusal of what was asked of the control.
pub(super) fn refused(because: impl std::fmt::Display) -> Answer {
    Answer::text(400, "text/plain", format!("{because}\n"))
}

/// `rules` and `log`; none when something else is asked for.
pub(super) fn answer(faults: &mut Faults, ask: &Ask) -> Option<Answer> {
    let (method, path) = ask.route();
    Some(match (method, &path[..]) {
        ("GET", ["rules"]) => Answer::json(200, json!(faults.rules())),
        ("PUT", ["rules"]) => match serde_json::from_slice::<Vec<Rule>>(&ask.body) {
            Ok(rules) => faults.set(rules).map_or_else(refused, |()| Answer::empty(204)),
            Err(error) => refused(error),
        },
        ("DELETE", ["rules"]) => {
            // No rule can be read wrongly.
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

/// How far the clock is to be moved: `{"seconds": 7200}`.
pub(super) fn seconds(ask: &Ask) -> Result<Duration, Answer> {
    let seconds = ask.json().and_then(|body| body["seconds"].as_f64()).unwrap_or(0.0);
    Duration::try_from_secs_f64(seconds).map_err(refused)
}

/// How tests in this process steer a stand-in that has its state in `shared`.
macro_rules! steering {
    ($sandbox:ty, $config:ty) => {
        impl $sandbox {
            /// Takes these rules in the place of those there are; an error says which cannot be read.
            pub fn faults(&self, rules: Vec<Rule>) -> Result<()> {
                self.shared.state().faults.set(rules)
            }

            /// Adds one rule.
            pub fn fault(&self, rule: Rule) -> Result<()> {
                self.shared.state().faults.add(rule)
            }

            /// All requests so far, with the statuses of their answers.
            pub fn log(&self) -> Vec<LogEntry> {
                self.shared.state().faults.log.clone()
            }

            /// Forgets the requests so far.
            pub fn forget_log(&self) {
                self.shared.state().faults.log.clear();
            }

            /// The stand-in's own time.
            pub fn now(&self) -> Timestamp {
                self.shared.state().now()
            }

            /// Moves its clock on; all that becomes due happens.
            pub fn advance(&self, by: Duration) {
                self.shared.state().clock.advance(by);
                drop(self.shared.state());
            }

            /// Changes how it behaves from now on: bugs, quotas, times.
            pub fn change(&self, change: impl FnOnce(&mut $config)) {
                change(&mut self.shared.state().config);
            }
        }
    };
}
pub(super) use steering;
