//! Nova's key pairs, separate for each user.

use serde_json::{Value, json};

use super::super::answer::{Answer, Ask};
use super::config::Bug;
use super::format::{fingerprint, long, uuid_of};
use super::records::{Caller, KeyPair};
use super::state::{Item, State};

impl KeyPair {
    pub(super) fn id_of(user_id: &str, name: &str) -> String {
        format!("{user_id}/{name}")
    }
}

impl Item for KeyPair {
    fn id(&self) -> &str {
        &self.id
    }
}

impl State {
    pub(super) fn key_pairs(&mut self, ask: &Ask, caller: &Caller, rest: &[&str], minor: u32) -> Answer {
        let shown = |key: &KeyPair| {
            let mut shown =
                json!({"name": key.name, "public_key": key.public_key, "fingerprint": fingerprint(&key.public_key)});
            if minor >= 2 {
                shown["type"] = json!("ssh");
            }
            shown
        };
        match (ask.method.as_str(), rest) {
            ("GET", []) => {
                let all = self.has(Bug::ListsForeign);
                let keys = self.keys.listed(self.now()).filter(|key| all || key.user_id == caller.user_id);
                let keys: Vec<Value> = keys.map(|key| json!({"keypair": shown(key)})).collect();
                Answer::json(200, json!({"keypairs": keys}))
            }
            ("POST", []) => {
                let asked = ask.json().unwrap_or_default();
                let text = |key: &str| asked["keypair"][key].as_str().unwrap_or_default().to_owned();
                let (name, public_key) = (text("name"), text("public_key"));
                if !["ssh-", "ecdsa-"].iter().any(|kind| public_key.starts_with(kind)) {
                    return Answer::nova(400, "Keypair data is invalid: failed to generate fingerprint");
                }
                let id = KeyPair::id_of(&caller.user_id, &name);
                if self.keys.get(&id).is_some() {
                    return Answer::nova(409, format!("Key pair '{name}' already exists."));
                }
                if self.keys.all().filter(|key| key.user_id == caller.user_id).count() >= self.config.key_pair_quota {
                    return Answer::nova(403, "Quota exceeded, too many key pairs.");
                }
                let key = KeyPair {
                    id,
                    name: self.kept(&name),
                    user_id: caller.user_id.clone(),
                    public_key,
                    created: self.now(),
                };
                let mut body = shown(&key);
                body["user_id"] = json!(key.user_id);
                let shown_from = self.shown();
                for copy in 0..self.copies() {
                    let mut key = key.clone();
                    if copy > 0 {
                        key.name.push_str("-2");
                        key.id = KeyPair::id_of(&key.user_id, &key.name);
                    }
                    self.keys.add(key, shown_from);
                }
                Answer::json(if minor >= 2 { 201 } else { 200 }, json!({"keypair": body}))
            }
            (method, [name]) => {
                let id = KeyPair::id_of(&caller.user_id, name);
                let Some(key) = self.keys.get(&id) else {
                    return Answer::nova(404, format!("Keypair {name} not found for user {}", caller.user_id));
                };
                if method == "DELETE" {
                    if !self.has(Bug::DeleteDoesNothing) {
                        let until = self.hidden();
                        self.keys.remove(&id, until);
                    }
                    return Answer::empty(if minor >= 2 { 204 } else { 202 }).with("content-type", "application/json");
                }
                let mut body = shown(key);
                body["user_id"] = json!(key.user_id);
                body["created_at"] = json!(long(key.created));
                body["deleted"] = json!(false);
                body["deleted_at"] = Value::Null;
                body["updated_at"] = Value::Null;
                body["id"] = json!(u32::from_str_radix(&uuid_of(&id)[..4], 16).unwrap_or(1));
                Answer::json(200, json!({"keypair": body}))
            }
            _ => Answer::nova(404, "The resource could not be found."),
        }
    }
}
