//! Chameleon's requests that change something, and its services as the matrix meets them.

use std::collections::BTreeSet;

use async_trait::async_trait;
use gpucl::name::{Scope, Tag};
use reqwest::Method;
use serde_json::{Value, json};

use super::services::{Services, Thing};
use crate::support::matrix::Death::{Acquired, Extended, Released, Waited};
use crate::support::matrix::{self, Call, Cloud, Trouble, Victim};

pub(super) const CALLS: [Call; 10] = [
    Call::new("PostLease", "POST", "^/reservation/.*/leases$", Acquired("lease")),
    Call::new("PutLease", "PUT", "^/reservation/.*/leases/[^/]+$", Extended),
    Call::new("DeleteLease", "DELETE", "^/reservation/.*/leases/[^/]+$", Released("lease")),
    Call::new("PostKey", "POST", "/os-keypairs$", Acquired("key_pair")),
    Call::new("DeleteKey", "DELETE", "/os-keypairs/[^/]+$", Released("key_pair")),
    Call::new("PostAddress", "POST", "/floatingips$", Acquired("floating_ip")),
    Call::new("PutAddress", "PUT", "/floatingips/[^/]+$", Waited("server")),
    Call::new("DeleteAddress", "DELETE", "/floatingips/[^/]+$", Released("floating_ip")),
    Call::new("PostServer", "POST", "/servers$", Acquired("server")),
    Call::new("DeleteServer", "DELETE", "/servers/[^/]+$", Released("server")),
];

/// The call of this name.
pub(super) fn call(name: &str) -> Call {
    Call::named(name, &CALLS)
}

pub(super) const TROUBLES: [Trouble; 9] = [
    Trouble::CutBefore,
    Trouble::AnswerLost,
    Trouble::NotJournalled,
    Trouble::Limited,
    Trouble::LimitedForLong,
    Trouble::Failed,
    Trouble::FailedAndDone,
    Trouble::BadGateway,
    Trouble::Malformed,
];

const KINDS: [&str; 4] = ["lease", "key_pair", "floating_ip", "server"];

impl matrix::Thing for Thing {
    fn kind(&self) -> &'static str {
        self.kind
    }

    fn id(&self) -> &str {
        &self.id
    }

    fn tag(&self) -> Option<Tag> {
        self.label.rsplit(' ').next()?.parse().ok()
    }
}

#[async_trait]
impl Cloud for Services {
    type Thing = Thing;

    const PROVIDER: &'static str = "chameleon";
    const LIMITED: u32 = 4;
    const VICTIM: Victim = Victim { kind: "floating_ip", id: "/floatingip/id", forgotten: &KINDS };

    fn variables(&self) -> Vec<(&'static str, String)> {
        vec![
            ("OS_AUTH_TYPE", "v3applicationcredential".to_owned()),
            ("OS_AUTH_URL", self.auth_url.clone()),
            ("OS_REGION_NAME", self.region.clone()),
            ("OS_APPLICATION_CREDENTIAL_ID", self.id.clone()),
            ("OS_APPLICATION_CREDENTIAL_SECRET", self.secret.clone()),
        ]
    }

    fn settings(&self, wanted: &[&str]) -> Value {
        if wanted.iter().any(|kind| ["lease", "server"].contains(kind)) {
            return json!({ "hours": 1, "shorten": true });
        }
        // What needs no lease plans one for some day: others may have the host now.
        let some_day = (jiff::Timestamp::now() + jiff::SignedDuration::from_hours(96)).strftime("%Y-%m-%d 12:00");
        json!({ "hours": 1, "start": some_day.to_string() })
    }

    fn hosts(&self) -> Vec<Value> {
        vec![json!({ "node": self.node })]
    }

    /// All; where that takes long, what the call needs.
    fn wanted(&self, call: Call) -> Vec<&'static str> {
        match call.death {
            Extended => vec!["lease"],
            Acquired(kind) | Released(kind) if self.is_real() && kind != "server" => vec![kind],
            _ => KINDS.to_vec(),
        }
    }

    async fn fail(&self, call: Call, fault: &str, count: u32) {
        let rule = json!({ "method": call.method, "path": call.path, "skip": 0, "count": count, "fault": fault });
        self.rules(&[rule]).await;
    }

    async fn fail_no_more(&self) {
        self.rules(&[]).await;
    }

    async fn has_failed(&self) -> bool {
        self.log().await.iter().any(|entry| entry["fault"].is_string())
    }

    async fn count_anew(&self) {
        self.forget_log().await;
    }

    async fn doubled(&self) -> Option<String> {
        for kind in KINDS {
            let made = self.made(kind).await;
            if made > 1 {
                return Some(format!("{kind} was made {made} times"));
            }
        }
        None
    }

    /// All that our user has; of leases those that are not over.
    async fn held(&self) -> Vec<Thing> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let ours = |value: &Value| value["user_id"] == self.user_id.as_str();
        let mut held = Vec::new();
        let list = |answer: &Value, key: &str| answer[key].as_array().unwrap().clone();
        for one in list(&self.ask(Method::GET, "reservation", "/leases", None).await.1, "leases") {
            if ours(&one) && one["status"] != "TERMINATED" {
                let (id, label, end) = (text(&one["id"]), text(&one["name"]), text(&one["end_date"]));
                held.push(Thing { kind: "lease", id, label, end });
            }
        }
        for one in list(&self.ask(Method::GET, "compute", "/os-keypairs", None).await.1, "keypairs") {
            let name = text(&one["keypair"]["name"]);
            held.push(Thing { kind: "key_pair", id: name.clone(), label: name, end: String::new() });
        }
        for one in list(&self.ask(Method::GET, "network", "/floatingips", None).await.1, "floatingips") {
            let (id, label) = (text(&one["id"]), text(&one["description"]));
            held.push(Thing { kind: "floating_ip", id, label, end: String::new() });
        }
        for one in list(&self.ask(Method::GET, "compute", "/servers/detail", None).await.1, "servers") {
            if ours(&one) {
                let (id, label) = (text(&one["id"]), text(&one["metadata"]["gpucl"]));
                held.push(Thing { kind: "server", id, label, end: String::new() });
            }
        }
        held
    }

    /// Where others come and go, what was made by hand.
    async fn not_ours(&self) -> BTreeSet<Thing> {
        let kept = self.kept();
        let mut held = self.held().await;
        held.retain(|thing| !self.is_real() || kept.contains(&thing.id));
        held.into_iter().collect()
    }

    async fn lease(&self, scope: &Scope) -> Option<(String, jiff::Timestamp)> {
        let lease = self.of(scope).await.into_iter().find(|thing| thing.kind == "lease")?;
        let end = lease.end.replace(' ', "T");
        let end = end.split('.').next().unwrap_or_default();
        Some((lease.id, format!("{end}Z").parse().unwrap()))
    }

    async fn make_blindly(&self, tag: &Tag) -> Option<(u16, Value)> {
        let body = self.new_address(&tag.to_string()).await;
        self.post_blindly("/network/v2.0/floatingips", &body).await
    }

    async fn remove_by_prefix(&self, prefix: &str) {
        for thing in self.held().await {
            let tag = thing.label.rsplit(' ').next().unwrap_or_default();
            if thing.kind == "floating_ip" && tag.starts_with(prefix) {
                self.remove(&thing).await;
            }
        }
    }
}
