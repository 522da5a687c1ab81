//! Changes by other users of the account, and changes to instances outside this API.

use std::time::Duration;

use super::super::clock::after;
use super::config::{Outcome, User};
use super::state::{FileSystem, Host, Instance, Phase, SshKey, State};

/// Names as people choose them, and as programs like gpucl do.
const NAMES: [&str; 6] = ["training", "", "gpucl", "sky-1a2b-head", "My Instance", "gpucl-train-host1"];

impl State {
    pub(super) fn free_in(&mut self, kind: &str, region: &str, count: u32, wait: Duration) {
        let place = (kind.to_owned(), region.to_owned());
        if wait.is_zero() {
            self.set_free(place, count);
        } else {
            self.coming.push((after(self.now(), wait), place, count));
        }
    }

    pub(super) fn vanish(&mut self, kind: &str, region: &str) -> bool {
        let Some(free) = self.free.get_mut(&(kind.to_owned(), region.to_owned())) else { return false };
        let any = free.count > 0;
        free.is_phantom = any;
        any
    }

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
