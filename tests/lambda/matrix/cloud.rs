//! Lambda's requests that change something, and its account: a stand-in of its own for each row.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use gpucl::name::{Key, Scope, Tag};
use gpucl::sandbox::lambda::{Rule, Sandbox, User};
use serde_json::{Value, json};

use crate::support::matrix::Death::{Acquired, Released, Waited};
use crate::support::matrix::{self, Call, Cloud, Trouble, Victim};

pub(super) const CALLS: [Call; 9] = [
    Call::new("PostKey", "POST", "/ssh-keys$", Acquired("ssh_key")),
    Call::new("DeleteKey", "DELETE", "/ssh-keys/[^/]+$", Released("ssh_key")),
    Call::new("PostRuleset", "POST", "/firewall-rulesets$", Acquired("firewall_ruleset")),
    Call::new("PatchRuleset", "PATCH", "/firewall-rulesets/[^/]+$", Waited("instance")),
    Call::new("DeleteRuleset", "DELETE", "/firewall-rulesets/[^/]+$", Released("firewall_ruleset")),
    Call::new("PostFileSystem", "POST", "/filesystems$", Acquired("file_system")),
    Call::new("DeleteFileSystem", "DELETE", "/filesystems/[^/]+$", Released("file_system")),
    Call::new("Launch", "POST", "/instance-operations/launch$", Acquired("instance")),
    Call::new("Terminate", "POST", "/instance-operations/terminate$", Released("instance")),
];

pub(super) const TROUBLES: [Trouble; 10] = [
    Trouble::CutBefore,
    Trouble::AnswerLost,
    Trouble::NotJournalled,
    Trouble::Limited,
    Trouble::LimitedForLong,
    Trouble::Failed,
    Trouble::FailedAndDone,
    Trouble::Page,
    Trouble::PageAndDone,
    Trouble::Malformed,
];

/// Something that the account holds.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Thing {
    kind: &'static str,
    id: String,
    name: String,
    /// Its status, which must not change either for resources of others.
    state: String,
}

impl matrix::Thing for Thing {
    fn kind(&self) -> &'static str {
        self.kind
    }

    fn id(&self) -> &str {
        &self.id
    }

    fn tag(&self) -> Option<Tag> {
        self.name.parse().ok()
    }
}

#[async_trait]
impl Cloud for Sandbox {
    type Thing = Thing;

    const PROVIDER: &'static str = "lambda";
    const LIMITED: u32 = 6;
    /// The stand-in shows at once what it did.
    const CONSISTENCY_DELAY: Option<Duration> = Some(Duration::from_millis(100));
    const VICTIM: Victim = Victim { kind: "instance", id: "/data/instance_ids/0", forgotten: &["instance"] };

    fn variables(&self) -> Vec<(&'static str, String)> {
        vec![
            ("LAMBDA_API_KEY", self.key(User::Alice)),
            ("LAMBDA_API_URL", self.base_url()),
            ("GPUCL_LAMBDA_PACE", "0.001".to_owned()),
        ]
    }

    fn settings(&self, _wanted: &[&str]) -> Value {
        json!({ "regions": ["us-east-1"], "file_systems": [{ "name": "data", "create": true }] })
    }

    fn hosts(&self) -> Vec<Value> {
        vec![json!({ "type": "gpu_1x_a10" }); 2]
    }

    fn wanted(&self, _call: Call) -> Vec<&'static str> {
        vec!["ssh_key", "firewall_ruleset", "file_system", "instance", "instance"]
    }

    async fn fail(&self, call: Call, fault: &str, count: u32) {
        self.faults(vec![Rule::new(call.method, call.path, fault).times(count)]).unwrap();
    }

    async fn fail_no_more(&self) {
        self.faults(Vec::new()).unwrap();
    }

    async fn has_failed(&self) -> bool {
        self.log().iter().any(|entry| entry.fault.is_some())
    }

    /// There is only one row, so everything counts.
    async fn count_anew(&self) {}

    async fn doubled(&self) -> Option<String> {
        let mut posted = posted(self);
        for (path, most) in
            [("/ssh-keys", 1), ("/firewall-rulesets", 1), ("/filesystems", 1), ("/instance-operations/launch", 2)]
        {
            let path = format!("/api/v1{path}");
            let made = posted.remove(&path).unwrap_or_default();
            if made > most {
                return Some(format!("{path} was carried out {made} times"));
            }
        }
        // Terminated instances stay listed, so every launch is visible.
        let mut names: BTreeMap<String, usize> = BTreeMap::new();
        for one in self.snapshot().ours().instances {
            *names.entry(one.name).or_default() += 1;
        }
        let (name, count) = names.into_iter().find(|(_, count)| *count > 1)?;
        Some(format!("{name} was launched {count} times"))
    }

    /// Instances that are terminated are gone.
    async fn held(&self) -> Vec<Thing> {
        let seen = self.snapshot();
        let thing =
            |kind, id: &str, name: &str, state: String| Thing { kind, id: id.to_owned(), name: name.to_owned(), state };
        let mut all: Vec<Thing> =
            seen.alive().map(|one| thing("instance", &one.id, &one.name, one.status.clone())).collect();
        all.extend(seen.ssh_keys.iter().map(|one| thing("ssh_key", &one.id, &one.name, one.public_key.clone())));
        all.extend(seen.file_systems.iter().map(|one| thing("file_system", &one.id, &one.name, one.region.clone())));
        all.extend(
            seen.rulesets.iter().map(|one| thing("firewall_ruleset", &one.id, &one.name, json!(one.rules).to_string())),
        );
        all.push(thing("rules", "", "of the account", json!(seen.global_rules).to_string()));
        all
    }

    async fn make_blindly(&self, tag: &Tag) -> Option<(u16, Value)> {
        let scope = Scope { owner: tag.owner.clone(), cluster: tag.cluster.clone() };
        let body = json!({
            "region_name": "us-east-1", "instance_type_name": "gpu_1x_a10", "name": tag.to_string(),
            "ssh_key_names": [scope.tag(&"key0".parse::<Key>().unwrap()).to_string()],
            "tags": [{ "key": "gpucl", "value": tag.to_string() }],
        });
        post(self, "/instance-operations/launch", &body).await
    }

    async fn remove_by_prefix(&self, prefix: &str) {
        let mut held = self.held().await;
        held.retain(|thing| thing.kind == "instance" && thing.name.starts_with(prefix));
        let ids: Vec<&str> = held.iter().map(|thing| thing.id.as_str()).collect();
        post(self, "/instance-operations/terminate", &json!({ "instance_ids": ids })).await;
    }
}

/// How many POSTs of each path were carried out, however they were answered.
fn posted(sandbox: &Sandbox) -> BTreeMap<String, usize> {
    let acts = |fault: &str| fault.starts_with("cut-after") || fault.starts_with("after") || fault == "malformed";
    let mut posted = BTreeMap::new();
    for entry in sandbox.log() {
        let is_done = entry.fault.as_deref().map_or(entry.status == 200, acts);
        if entry.method == "POST" && is_done {
            *posted.entry(entry.path).or_default() += 1;
        }
    }
    posted
}

/// One request past the program; the status, and nothing when the connection was cut.
pub(super) async fn post(sandbox: &Sandbox, path: &str, body: &Value) -> Option<(u16, Value)> {
    let client = gpucl::util::http::loopback_client().build().unwrap();
    let request = client.post(format!("{}/api/v1{path}", sandbox.base_url())).bearer_auth(sandbox.key(User::Alice));
    let answer = request.json(body).send().await.ok()?;
    let status = answer.status().as_u16();
    let body = answer.bytes().await.ok()?;
    Some((status, serde_json::from_slice(&body).unwrap_or_default()))
}
