//! Remote control of the stand-in: `/control`, a superset of the control of the testbed's fault proxy.

use serde_json::json;

use super::super::control;
use super::answer::{Answer, Ask};
use super::snapshot::Snapshot;
use super::state::Shared;

pub(super) fn answer(shared: &Shared, ask: &Ask) -> Answer {
    let mut state = shared.state();
    if let Some(answer) = control::answer(&mut state.faults, ask) {
        return answer;
    }
    let (method, path) = ask.route();
    match (method, &path[..]) {
        ("GET", ["snapshot"]) => Answer::json(200, json!(Snapshot::of(&state))),
        ("POST", ["advance"]) => match control::seconds(ask) {
            Ok(by) => {
                state.clock.advance(by);
                state.advance_all();
                Answer::empty(204)
            }
            Err(refused) => refused,
        },
        ("POST", ["fail-server"]) => {
            let text = ask.json().and_then(|body| body["fault"].as_str().map(str::to_owned));
            state.failures.push_back(text.unwrap_or_else(|| "Build of instance failed".to_owned()));
            Answer::empty(204)
        }
        ("POST", ["foreign-lease"]) => {
            let body = ask.json().unwrap_or_default();
            let time = |key: &str| body[key].as_str().and_then(|text| text.parse().ok());
            let made = match (body["node"].as_str(), time("start"), time("end")) {
                (Some(node), Some(start), Some(end)) => state.foreign_lease(node, start, end),
                _ => None,
            };
            match made {
                Some(id) => Answer::json(200, json!({"id": id})),
                None => Answer::text(400, "text/plain", "expected a known node, start and end (2026-11-22T14:00Z)\n"),
            }
        }
        _ => Answer::text(404, "text/plain", "rules, log, snapshot, advance, fail-server, foreign-lease\n"),
    }
}
