//! What steers the stand-in from outside: `/control`, as the testbed's fault proxy has it, and more.

use serde_json::{Value, json};

use super::super::control;
use super::answer::{Answer, Ask};
use super::config::User;
use super::serve::Shared;
use super::snapshot::Snapshot;
use super::state::State;

pub(super) fn answer(shared: &Shared, ask: &Ask) -> Answer {
    let mut state = shared.state();
    if let Some(answer) = control::answer(&mut state.faults, ask) {
        return answer;
    }
    let (method, path) = ask.route();
    match (method, &path[..]) {
        ("GET", ["snapshot"]) => Answer::json(200, json!(Snapshot::of(&state))),
        ("GET", ["credentials"]) => Answer::json(200, credentials(&state)),
        ("POST", ["advance"]) => match control::seconds(ask) {
            Ok(by) => {
                state.clock.advance(by);
                state.settle_all();
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
                None => Answer::text(400, "text/plain", "it takes node, start and end (2026-11-22T14:00Z)\n"),
            }
        }
        _ => {
            Answer::text(404, "text/plain", "rules, log, snapshot, credentials, advance, fail-server, foreign-lease\n")
        }
    }
}

/// In the form of the testbed's credentials file.
fn credentials(state: &State) -> Value {
    let mut accounts = json!({});
    for credential in &state.credentials {
        let caller = State::caller(credential.user);
        let account = &mut accounts[&caller.user];
        account["username"] = json!(caller.user);
        account["user_id"] = json!(caller.user_id);
        account["domain"] = json!("Default");
        account["project_name"] = json!(caller.project);
        account["project_id"] = json!(caller.project_id);
        let kind = if credential.user == User::AliceRestricted { "restricted" } else { "unrestricted" };
        account[kind] = json!({"id": credential.id, "secret": credential.secret});
    }
    json!({"version": 1, "auth_url": format!("{}/identity/v3", state.base), "region_name": state.config.region,
        "faults": {"auth_url": format!("{}/identity/v3", state.base), "control_url": format!("{}/control", state.base)},
        "network": state.config.networks.first(), "public_network": "public", "flavor": "baremetal",
        "images": state.config.images.iter().map(|image| &image.name).collect::<Vec<_>>(), "accounts": accounts})
}
