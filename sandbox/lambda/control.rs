//! Changes to the account outside its API, by other users and by the cloud, and the control that asks for them.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde_json::{Value, json};

use super::super::answer::{Answer, Ask};
use super::super::control::refused;
use super::config::{Account, Outcome, User};
use super::records::{FileSystem, Host, Instance, Phase, SshKey};
use super::snapshot::Snapshot;
use super::state::State;

/// Default port of sshd.
const SSH: u16 = 22;

/// Names of foreign instances: as people choose them, and as programs like gpucl do.
const NAMES: [&str; 6] = ["training", "", "gpucl", "sky-1a2b-head", "My Instance", "gpucl-train-host1"];

/// Answers a request to the control that is for this stand-in only.
pub(super) fn answer(state: &mut State, ask: &Ask) -> Answer {
    let body = ask.json().unwrap_or_default();
    let text = |name: &str| body[name].as_str().unwrap_or_default();
    let (method, path) = ask.route();
    match (method, &path[..]) {
        ("GET", ["snapshot"]) => Answer::json(200, json!(Snapshot::of(state))),
        ("GET", ["pace"]) => Answer::json(200, json!(state.limiter.pace)),
        ("GET", ["contract"]) => {
            let ledger = &state.ledger;
            Answer::json(200, json!({"validated": ledger.validated, "violations": ledger.violations}))
        }
        ("GET", ["instances"]) => Answer::json(200, json!(hosts(state))),
        ("POST", ["instances", id]) => wired(state, id, &body),
        ("POST", ["capacity"]) => capacity(state, text("type"), text("region"), &body),
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
    let is_meant = |instance: &&Instance| instance.is_up() && !instance.is_foreign;
    let view = |instance: &Instance| {
        let boot = state.boot(instance);
        json!({
            "id": boot.id, "name": instance.name, "status": instance.status(), "hostname": boot.hostname,
            "type": boot.instance_type, "gpus": boot.gpus, "region": boot.region, "user_data": boot.user_data,
            "public_keys": boot.public_keys, "silent": boot.silent.as_secs_f64(), "answers": instance.answers,
            "private_ip": instance.private_ip, "file_systems": mounts_of(instance), "is_wired": matches!(instance.host, Host::At(_)),
        })
    };
    state.instances.iter().filter(is_meant).map(view).collect()
}

/// The file systems that are attached to an instance: their ids and mount points.
fn mounts_of(instance: &Instance) -> Vec<Value> {
    instance.mounts.iter().map(|(id, at)| json!({"id": id, "mount_point": at})).collect()
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

impl State {
    pub(super) fn preempt(&mut self, id: &str) -> bool {
        let since = self.now();
        self.on_instance(id, |instance| {
            instance.phase = Phase::Preempted { since };
            instance.ended = Some(since);
        })
    }

    pub(super) fn make_unhealthy(&mut self, id: &str) -> bool {
        self.on_instance(id, |instance| instance.phase = Phase::Unhealthy)
    }

    pub(super) fn terminate_behind(&mut self, id: &str) -> bool {
        let since = self.now();
        self.on_instance(id, |instance| instance.phase = Phase::Terminating { since })
    }

    pub(super) fn add_foreign(&mut self, count: usize) -> Vec<String> {
        (0..count)
            .map(|number| {
                let name = NAMES[number % NAMES.len()];
                self.add_machine(name, if number % 2 == 0 { &[] } else { &[("team", "vision")] })
            })
            .collect()
    }

    pub(super) fn add_machine(&mut self, name: &str, tags: &[(&str, &str)]) -> String {
        let now = self.now();
        let (made_up, private_ip) = self.next_addresses();
        let first = |names: Option<&String>| names.cloned().unwrap_or_default();
        let id = self.ids.hex();
        self.instances.push(Instance {
            id: id.clone(),
            name: name.to_owned(),
            kind: first(self.config.types.iter().map(|kind| &kind.name).find(|name| name.contains("a10"))),
            region: first(self.config.regions.iter().map(|region| &region.name).next()),
            key_names: vec!["somebody".to_owned()],
            public_keys: Vec::new(),
            mounts: Vec::new(),
            hostname: None,
            image: "lambda-stack-22-04".to_owned(),
            user_data: None,
            tags: tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            rulesets: Vec::new(),
            launched: now,
            shown: now,
            ended: None,
            phase: Phase::Active,
            outcome: Outcome::Active,
            made_up,
            private_ip,
            host: Host::MadeUp,
            answers: false,
            jupyter_token: self.ids.hex(),
            refusals: 0,
            is_strange: false,
            is_foreign: true,
        });
        id
    }

    pub(super) fn put_key(&mut self, name: &str, public_key: &str) -> String {
        let (id, shown) = (self.ids.hex(), self.now());
        self.keys.push(SshKey { id: id.clone(), name: name.to_owned(), public_key: public_key.to_owned(), shown });
        id
    }

    pub(super) fn put_file_system(&mut self, name: &str, region: &str) -> String {
        let (id, now) = (self.ids.hex(), self.now());
        let (name, region) = (name.to_owned(), region.to_owned());
        self.file_systems.push(FileSystem { id: id.clone(), name, region, created: now, shown: now, by: User::Bob });
        id
    }
}
