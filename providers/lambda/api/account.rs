//! The API calls, one function each.

use reqwest::Method;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::{Value, json};

use super::call::{Account, LAUNCH_PATH};
use super::failure::{Api, Failure, FailureKind};
use super::form::{FileSystem, Image, Instance, Region, Rule, Ruleset, SshKey, TagEntry, TypeItem};
use crate::provider::kit::http::{Effect, part};

#[derive(Debug, Clone)]
pub(crate) struct NewInstance {
    pub(crate) name: String,
    pub(crate) hostname: String,
    pub(crate) kind: String,
    pub(crate) region: String,
    pub(crate) ssh_key: String,
    /// Ids and mount points of file systems.
    pub(crate) mounts: Vec<(String, String)>,
    /// The image, in Lambda's JSON format: `{"id": …}` or `{"family": …}`.
    pub(crate) image: Option<Value>,
    /// The cloud-init configuration; contains the host's private SSH key.
    pub(crate) user_data: SecretString,
    pub(crate) tag: (&'static str, String),
    /// Ids of firewall rulesets.
    pub(crate) rulesets: Vec<String>,
}

impl NewInstance {
    fn body(&self) -> Value {
        let (key, value) = &self.tag;
        let mut body = json!({
            "region_name": self.region,
            "instance_type_name": self.kind,
            "ssh_key_names": [self.ssh_key],
            "name": self.name,
            "hostname": self.hostname,
            "user_data": self.user_data.expose_secret(),
            "tags": [TagEntry { key: (*key).to_owned(), value: value.clone() }],
        });
        if !self.mounts.is_empty() {
            let mount = |(id, at): &(String, String)| json!({ "file_system_id": id, "mount_point": at });
            body["file_system_mounts"] = self.mounts.iter().map(mount).collect();
        }
        if let Some(image) = &self.image {
            body["image"] = image.clone();
        }
        if !self.rulesets.is_empty() {
            body["firewall_rulesets"] = self.rulesets.iter().map(|id| json!({ "id": id })).collect();
        }
        body
    }
}

#[derive(Deserialize)]
struct Launched {
    instance_ids: Vec<String>,
}

impl Account {
    /// All instances, including some terminated ones.
    pub(crate) async fn instances(&self) -> Api<Vec<Instance>> {
        self.read("/instances", "list the instances").await
    }

    /// All types, sorted by name, with the regions that have capacity now.
    pub(crate) async fn types(&self) -> Api<Vec<TypeItem>> {
        let types: std::collections::BTreeMap<String, TypeItem> =
            self.read("/instance-types", "list the instance types").await?;
        Ok(types.into_values().collect())
    }

    pub(crate) async fn regions(&self) -> Api<Vec<Region>> {
        self.read("/regions", "list the regions").await
    }

    pub(crate) async fn images(&self) -> Api<Vec<Image>> {
        self.read("/images", "list the images").await
    }

    pub(crate) async fn ssh_keys(&self) -> Api<Vec<SshKey>> {
        self.read("/ssh-keys", "list the SSH keys").await
    }

    pub(crate) async fn add_ssh_key(&self, name: &str, public: &str) -> Api<SshKey> {
        let body = json!({ "name": name, "public_key": public });
        self.change(Method::POST, "/ssh-keys", Some(body), &format!("add the SSH key {name}")).await
    }

    /// Deletes a key. Idempotent.
    pub(crate) async fn delete_ssh_key(&self, id: &str) -> Api<()> {
        self.remove(&format!("/ssh-keys/{}", part(id)), &format!("delete the SSH key {id}")).await
    }

    pub(crate) async fn file_systems(&self) -> Api<Vec<FileSystem>> {
        self.read("/file-systems", "list the file systems").await
    }

    pub(crate) async fn create_file_system(&self, name: &str, region: &str) -> Api<FileSystem> {
        let body = json!({ "name": name, "region": region });
        self.change(Method::POST, "/filesystems", Some(body), &format!("create the file system {name} in {region}"))
            .await
    }

    /// Deletes a file system with all its data.
    pub(crate) async fn delete_file_system(&self, id: &str) -> Api<()> {
        self.remove(&format!("/filesystems/{}", part(id)), &format!("delete the file system {id}")).await
    }

    /// All firewall rulesets except the account's own.
    pub(crate) async fn rulesets(&self) -> Api<Vec<Ruleset>> {
        self.read("/firewall-rulesets", "list the firewall rulesets").await
    }

    pub(crate) async fn create_ruleset(&self, name: &str, region: &str, rules: &[Rule]) -> Api<Ruleset> {
        let body = json!({ "name": name, "region": region, "rules": rules });
        let doing = format!("create the firewall ruleset {name} in {region}");
        self.change(Method::POST, "/firewall-rulesets", Some(body), &doing).await
    }

    /// Replaces the rules of one ruleset. Idempotent.
    pub(crate) async fn replace_rules(&self, id: &str, rules: &[Rule]) -> Api<Ruleset> {
        let path = format!("/firewall-rulesets/{}", part(id));
        let doing = format!("change the firewall ruleset {id}");
        self.change(Method::PATCH, &path, Some(json!({ "rules": rules })), &doing).await
    }

    pub(crate) async fn delete_ruleset(&self, id: &str) -> Api<()> {
        let path = format!("/firewall-rulesets/{}", part(id));
        self.remove(&path, &format!("delete the firewall ruleset {id}")).await
    }

    /// Launches one instance, and returns its id.
    pub(crate) async fn launch(&self, new: &NewInstance) -> Api<String> {
        let doing = format!("launch a {} in {}", new.kind, new.region);
        let launched: Launched = self.change(Method::POST, LAUNCH_PATH, Some(new.body()), &doing).await?;
        launched.instance_ids.into_iter().next().ok_or_else(|| {
            Failure::new(FailureKind::NoApi, doing, "the response names no instance").effect(Effect::Unknown)
        })
    }

    /// Terminates an instance. Idempotent.
    pub(crate) async fn terminate(&self, id: &str) -> Api<()> {
        let body = json!({ "instance_ids": [id] });
        let doing = format!("terminate the instance {id}");
        let _: Value = self.change(Method::POST, "/instance-operations/terminate", Some(body), &doing).await?;
        Ok(())
    }

    async fn remove(&self, path: &str, doing: &str) -> Api<()> {
        match self.change::<Value>(Method::DELETE, path, None, doing).await {
            Err(failure) if failure.kind != FailureKind::NotFound => Err(failure),
            _ => Ok(()),
        }
    }
}
