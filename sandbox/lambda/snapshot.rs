//! A snapshot of everything that exists, for tests.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::records::{Host, Instance};
use super::state::State;

/// All resources of the account, including those that lists do not show yet.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Snapshot {
    /// Instances, including terminated ones that are still listed.
    pub instances: Vec<InstanceSnapshot>,
    /// SSH keys of the account.
    pub ssh_keys: Vec<SshKeySnapshot>,
    /// File systems of the account.
    pub file_systems: Vec<FileSystemSnapshot>,
    /// Firewall rulesets of all regions.
    pub rulesets: Vec<RulesetSnapshot>,
    /// Firewall rules of the account, as JSON.
    pub global_rules: Vec<Value>,
}

/// An instance in a snapshot.
#[derive(Clone, PartialEq, Serialize)]
pub struct InstanceSnapshot {
    /// Id: 32 hexadecimal digits.
    pub id: String,
    /// Name; empty for none.
    pub name: String,
    /// Name of the instance type.
    pub instance_type: String,
    /// Name of the region.
    pub region: String,
    /// `booting`, `active` and so on.
    pub status: String,
    /// Tags as keys and values.
    pub tags: Vec<(String, String)>,
    /// Hostname, if the launch set one.
    pub hostname: Option<String>,
    /// Family of the image.
    pub image: String,
    /// Names of the SSH keys.
    pub ssh_key_names: Vec<String>,
    /// Ids and mount points of the file systems.
    pub mounts: Vec<(String, String)>,
    /// Ids of the firewall rulesets.
    pub rulesets: Vec<String>,
    /// User data of the launch.
    pub user_data: Option<String>,
    /// The address that the API shows now.
    pub ip: Option<String>,
    /// Whether the creator of the host reported that sshd answers.
    pub answers: bool,
    /// Port of the host's sshd; `None` without a host.
    pub port: Option<u16>,
    /// A secret that the API shows, and that must not appear anywhere else.
    pub jupyter_token: String,
    /// Price in US cents per hour.
    pub cents: u32,
    /// Time of the launch, from which the instance is billed.
    pub launched: Timestamp,
    /// End of the billing.
    pub ended: Option<Timestamp>,
    /// Whether the instance is billed now.
    pub is_billed: bool,
    /// Whether a test added the instance.
    pub is_foreign: bool,
}

impl std::fmt::Debug for InstanceSnapshot {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "{} `{}` {} {} {}", self.id, self.name, self.instance_type, self.region, self.status)
    }
}

/// An SSH key in a snapshot.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SshKeySnapshot {
    /// Id: 32 hexadecimal digits.
    pub id: String,
    /// Name; not unique.
    pub name: String,
    /// Public key in OpenSSH format.
    pub public_key: String,
}

/// A file system in a snapshot.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FileSystemSnapshot {
    /// Id: 32 hexadecimal digits.
    pub id: String,
    /// Name, unique in the account.
    pub name: String,
    /// Name of the region.
    pub region: String,
    /// Whether an instance uses it.
    pub is_in_use: bool,
}

/// A firewall ruleset in a snapshot.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RulesetSnapshot {
    /// Id: 32 hexadecimal digits.
    pub id: String,
    /// Name; not unique.
    pub name: String,
    /// Name of the region.
    pub region: String,
    /// Rules, as JSON.
    pub rules: Vec<Value>,
    /// Ids of the instances that it is attached to.
    pub instance_ids: Vec<String>,
}

impl Snapshot {
    pub(super) fn of(state: &State) -> Self {
        let now = state.now();
        Self {
            instances: state
                .instances
                .iter()
                .map(|instance| seen(state, instance, state.address_of(instance, now)))
                .collect(),
            ssh_keys: state
                .keys
                .iter()
                .map(|key| SshKeySnapshot {
                    id: key.id.clone(),
                    name: key.name.clone(),
                    public_key: key.public_key.clone(),
                })
                .collect(),
            file_systems: state
                .file_systems
                .iter()
                .map(|system| FileSystemSnapshot {
                    id: system.id.clone(),
                    name: system.name.clone(),
                    region: system.region.clone(),
                    is_in_use: state.uses_file_system(&system.id),
                })
                .collect(),
            rulesets: state
                .rulesets
                .iter()
                .map(|ruleset| RulesetSnapshot {
                    id: ruleset.id.clone(),
                    name: ruleset.name.clone(),
                    region: ruleset.region.clone(),
                    rules: ruleset.rules.clone(),
                    instance_ids: state.users_of_ruleset(&ruleset.id).into_iter().map(str::to_owned).collect(),
                })
                .collect(),
            global_rules: state.global_rules.clone(),
        }
    }

    /// Instances that are not terminated, of any user.
    pub fn alive(&self) -> impl Iterator<Item = &InstanceSnapshot> {
        self.instances.iter().filter(|instance| instance.status != "terminated")
    }

    /// The snapshot without the instances that tests added.
    #[must_use]
    pub fn ours(&self) -> Self {
        let mut ours = self.clone();
        ours.instances.retain(|instance| !instance.is_foreign);
        ours
    }

    /// Number of unterminated instances, keys, file systems and rulesets, including those that tests added.
    pub fn counts(&self) -> [usize; 4] {
        [self.alive().count(), self.ssh_keys.len(), self.file_systems.len(), self.rulesets.len()]
    }
}

fn seen(state: &State, instance: &Instance, ip: Option<String>) -> InstanceSnapshot {
    InstanceSnapshot {
        id: instance.id.clone(),
        name: instance.name.clone(),
        instance_type: instance.kind.clone(),
        region: instance.region.clone(),
        status: instance.status().to_owned(),
        tags: instance.tags.clone(),
        hostname: instance.hostname.clone(),
        image: instance.image.clone(),
        ssh_key_names: instance.key_names.clone(),
        mounts: instance.mounts.clone(),
        rulesets: instance.rulesets.clone(),
        user_data: instance.user_data.clone(),
        ip,
        answers: instance.answers,
        port: match instance.host {
            Host::At(address) => Some(address.port()),
            Host::MadeUp | Host::Awaited { .. } => None,
        },
        jupyter_token: instance.jupyter_token.clone(),
        cents: state.kind(&instance.kind).map_or(0, |kind| kind.cents),
        launched: instance.launched,
        ended: instance.ended,
        is_billed: instance.is_billed(),
        is_foreign: instance.is_foreign,
    }
}
