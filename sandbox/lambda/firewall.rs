//! Firewall rules of the account, and regional rulesets that are attached at launch.

use serde_json::{Value, json};

use super::super::answer::Answer;
use super::config::Bug;
use super::records::{Instance, Ruleset};
use super::refusal::{Refusal, data};
use super::schema::network;
use super::state::State;

impl State {
    pub(super) fn list_rules(&self) -> Answer {
        data(json!(self.global_rules))
    }

    pub(super) fn set_rules(&mut self, body: &Value) -> Answer {
        match rules(&body["data"]) {
            Ok(rules) => self.global_rules = rules,
            Err(text) => return Refusal::InvalidParameters.says(text),
        }
        self.list_rules()
    }

    pub(super) fn global_ruleset(&self) -> Answer {
        data(json!({"id": "global", "name": "Default Workspace Global Rules", "rules": self.global_rules}))
    }

    pub(super) fn set_global_ruleset(&mut self, body: &Value) -> Answer {
        if body["rules"].is_array() {
            match rules(&body["rules"]) {
                Ok(rules) => self.global_rules = rules,
                Err(text) => return Refusal::InvalidParameters.says(text),
            }
        }
        self.global_ruleset()
    }

    pub(super) fn list_rulesets(&self) -> Answer {
        let now = self.now();
        let shown = self.rulesets.iter().filter(|ruleset| ruleset.shown <= now);
        data(json!(shown.map(|ruleset| self.ruleset_view(ruleset)).collect::<Vec<_>>()))
    }

    pub(super) fn add_ruleset(&mut self, body: &Value) -> Answer {
        let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
        let (name, region) = (text("name"), text("region"));
        match self.region(&region) {
            None => return Refusal::InvalidParameters.says(format!("Region {region} does not exist.")),
            Some(known) if !known.firewall => {
                let text = format!("Firewall rulesets are not supported in {region}.");
                return Refusal::InvalidParameters.says(text);
            }
            Some(_) => {}
        }
        if self.rulesets.len() >= self.config.ruleset_quota {
            return Refusal::QuotaExceeded.plain();
        }
        let rules = match rules(&body["rules"]) {
            Ok(rules) => rules,
            Err(text) => return Refusal::InvalidParameters.says(text),
        };
        let (created, shown) = (self.now(), self.shown());
        let made = Ruleset { id: self.ids.hex(), name, region, rules, created, shown };
        let view = self.ruleset_view(&made);
        for number in 0..self.times() {
            let id = if number == 0 { made.id.clone() } else { self.ids.hex() };
            self.rulesets.push(Ruleset { id, ..made.clone() });
        }
        data(view)
    }

    pub(super) fn get_ruleset(&self, id: &str) -> Answer {
        let found = self.rulesets.iter().find(|ruleset| ruleset.id == id);
        found.map_or_else(|| Refusal::FirewallRulesetNotFound.plain(), |ruleset| data(self.ruleset_view(ruleset)))
    }

    pub(super) fn change_ruleset(&mut self, id: &str, body: &Value) -> Answer {
        let Some(ruleset) = self.rulesets.iter_mut().find(|ruleset| ruleset.id == id) else {
            return Refusal::FirewallRulesetNotFound.plain();
        };
        if body["rules"].is_array() {
            match rules(&body["rules"]) {
                Ok(rules) => ruleset.rules = rules,
                Err(text) => return Refusal::InvalidParameters.says(text),
            }
        }
        if let Some(name) = body["name"].as_str() {
            ruleset.name = name.to_owned();
        }
        self.get_ruleset(id)
    }

    pub(super) fn delete_ruleset(&mut self, id: &str) -> Answer {
        if !self.rulesets.iter().any(|ruleset| ruleset.id == id) {
            return Refusal::FirewallRulesetNotFound.plain();
        }
        if !self.users_of_ruleset(id).is_empty() {
            return Refusal::FirewallRulesetInUse.plain();
        }
        if !self.has_bug(Bug::DeleteDoesNothing) {
            self.rulesets.retain(|ruleset| ruleset.id != id);
        }
        data(json!({}))
    }

    /// Ids of the instances that a ruleset is attached to.
    pub(super) fn users_of_ruleset(&self, id: &str) -> Vec<&str> {
        let uses = |instance: &&Instance| instance.holds() && instance.rulesets.iter().any(|attached| attached == id);
        self.instances.iter().filter(uses).map(|instance| instance.id.as_str()).collect()
    }

    fn ruleset_view(&self, ruleset: &Ruleset) -> Value {
        json!({
            "id": ruleset.id, "name": ruleset.name, "region": self.region_view(&ruleset.region), "rules": ruleset.rules,
            "created": ruleset.created, "instance_ids": self.users_of_ruleset(&ruleset.id),
        })
    }
}

/// Rules as they are stored: every protocol but ICMP needs ports, and a bare address becomes a /32 network.
fn rules(asked: &Value) -> Result<Vec<Value>, String> {
    asked.as_array().into_iter().flatten().map(rule).collect()
}

fn rule(asked: &Value) -> Result<Value, String> {
    let (protocol, ports) = (&asked["protocol"], &asked["port_range"]);
    match (protocol == "icmp", ports.is_array()) {
        (true, true) => return Err("port_range is not allowed for the icmp protocol.".to_owned()),
        (false, false) => return Err(format!("port_range is required for the protocol {protocol}.")),
        _ => {}
    }
    if ports[0].as_u64() > ports[1].as_u64() {
        return Err(format!("port_range {ports} ends before it begins."));
    }
    let source = asked["source_network"].as_str().and_then(network);
    let Some(source) = source else { return Err(format!("{} is not an IPv4 network.", asked["source_network"])) };
    let mut kept = asked.clone();
    kept["source_network"] = json!(source);
    Ok(kept)
}
