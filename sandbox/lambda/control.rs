//! Remote control of the stand-in: `/control`.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde_json::{Value, json};

use super::super::answer::{Answer, Ask};
use super::super::control::{self, refused, seconds};
use super::config::{Account, Outcome, User};
use super::snapshot::Snapshot;
use super::state::Shared;
use super::state::State;
use super::wiring::is_up;

/// Default port of sshd.
const SSH: u16 = 22;

pub(super) fn answer(shared: &Shared, ask: &Ask) -> Answer {
    let mut state = shared.state();
    if let Some(answer) = control::answer(&mut state.faults, ask) {
        return answer;
    }
    let body = ask.json().unwrap_or_default();
    let text = |name: &str| body[name].as_str().unwrap_or_default();
    let (method, path) = ask.route();
    match (method, &path[..]) {
        ("GET", ["snapshot"]) => Answer::json(200, json!(Snapshot::of(&state))),
        ("GET", ["pace"]) => Answer::json(200, json!(state.limiter.pace)),
        ("GET", ["contract"]) => {
            let ledger = &state.ledger;
            Answer::json(200, json!({"validated": ledger.validated, "violations": ledger.violations}))
        }
        ("GET", ["instances"]) => Answer::json(200, json!(hosts(&state))),
        ("POST", ["instances", id]) => wired(&mut state, id, &body),
        ("POST", ["advance"]) => match seconds(ask) {
            Ok(by) => {
                state.clock.advance(by);
                Answer::empty(204)
            }
            Err(refused) => refused,
        },
        ("POST", ["capacity"]) => capacity(&mut state, text("type"), text("region"), &body),
        ("POST", ["vanish"]) => done(state.vanish(text("type"), text("region")), "nothing is free there"),
        ("POST", ["next"]) => match Outcome::read(text("outcome")) {
            Some(outcome) => {
                state.outcomes.push_back(outcome);
                Answer::empty(204)
            }
            None => refused("outcome must be active, unhealthy, stuck, no-address or preempted"),
        },
        ("POST", [what @ ("preempt" | "terminate" | "unhealthy"), id]) => {
            let is_there = match *what {
                "preempt" => state.preempt(id),
                "terminate" => state.terminate_behind(id),
                _ => state.make_unhealthy(id),
            };
            done(is_there, "there is no such instance")
        }
        ("POST", ["refuse-terminate", id]) => {
            let times = body["times"].as_u64().and_then(|times| u32::try_from(times).ok()).unwrap_or(1);
            done(state.on_instance(id, |instance| instance.refusals = times), "there is no such instance")
        }
        ("POST", ["foreign"]) => {
            let count = body["count"].as_u64().and_then(|count| usize::try_from(count).ok()).unwrap_or(1);
            Answer::json(200, json!({"ids": state.add_foreign(count)}))
        }
        ("POST", ["revoke"]) => match User::ALL.into_iter().find(|user| user.name() == text("user")) {
            Some(user) => {
                state.api_keys.retain(|_, of| *of != user);
                Answer::empty(204)
            }
            None => refused("user must be alice, bob or carol"),
        },
        ("POST", ["account"]) => {
            state.config.account = match text("is") {
                "open" => Account::Open,
                "inactive" => Account::Inactive,
                "no-address" => Account::NoAddress,
                _ => return refused("`is` must be open, inactive or no-address"),
            };
            Answer::empty(204)
        }
        _ => Answer::text(
            404,
            "text/plain",
            "rules, log, snapshot, pace, contract, instances, advance, capacity, vanish, next, preempt, terminate, \
             unhealthy, refuse-terminate, foreign, revoke, account\n",
        ),
    }
}

fn done(is_there: bool, otherwise: &str) -> Answer {
    if is_there { Answer::empty(204) } else { refused(otherwise) }
}

/// What is needed to create a host, for each instance that should have one.
fn hosts(state: &State) -> Vec<Value> {
    let is_meant = |instance: &&super::state::Instance| is_up(instance) && !instance.is_foreign;
    let view = |instance: &super::state::Instance| {
        let boot = state.boot(instance);
        json!({
            "id": boot.id, "name": instance.name, "status": instance.status(), "hostname": boot.hostname,
            "type": boot.instance_type, "gpus": boot.gpus, "region": boot.region, "user_data": boot.user_data,
            "public_keys": boot.public_keys, "silent": boot.silent.as_secs_f64(), "answers": instance.answers,
            "private_ip": instance.private_ip, "is_wired": matches!(instance.host, super::state::Host::At(_)),
        })
    };
    state.instances.iter().filter(is_meant).map(view).collect()
}

fn wired(state: &mut State, id: &str, body: &Value) -> Answer {
    let Some(ip) = body["ip"].as_str().and_then(|ip| ip.parse::<IpAddr>().ok()) else {
        return refused("expected ip, and optionally port and answers");
    };
    let port = body["port"].as_u64().and_then(|port| u16::try_from(port).ok()).unwrap_or(SSH);
    let answers = body["answers"].as_bool().unwrap_or(true);
    done(state.wire(id, SocketAddr::new(ip, port), answers), "there is no such instance")
}

fn capacity(state: &mut State, kind: &str, region: &str, body: &Value) -> Answer {
    let count = body["count"].as_u64().and_then(|count| u32::try_from(count).ok());
    let Some(count) = count.filter(|_| state.kind(kind).is_some() && state.region(region).is_some()) else {
        return refused("expected a known type and region, count, and optionally in_seconds");
    };
    let wait = Duration::try_from_secs_f64(body["in_seconds"].as_f64().unwrap_or(0.0)).unwrap_or_default();
    state.free_in(kind, region, count, wait);
    Answer::empty(204)
}
