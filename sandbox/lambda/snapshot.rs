//! What exists, for tests to look at.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::state::{Host, Instance, State};

/// Everything that the account holds, also what lists do not show yet.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Snapshot {
    /// Instances, those that are terminated and still listed with them.
    pub instances: Vec<InstanceSeen>,
    /// SSH keys.
    pub ssh_keys: Vec<SshKeySeen>,
    /// File systems.
    pub file_systems: Vec<FileSystemSeen>,
    /// Firewall rulesets.
    pub rulesets: Vec<RulesetSeen>,
    /// The rules of the whole account.
    pub global_rules: Vec<Value>,
}

/// An instance.
#[derive(Clone, PartialEq, Serialize)]
pub struct InstanceSeen {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its type.
    pub instance_type: String,
    /// Its region.
    pub region: String,
    /// `booting`, `active` and so on.
    pub status: String,
    /// Its tags.
    pub tags: Vec<(String, String)>,
    /// Its hostname, when the launch gave one.
    pub hostname: Option<String>,
    /// The image's family.
    pub image: String,
    /// The names of its keys.
    pub ssh_key_names: Vec<String>,
    /// Ids and mount points of its file systems.
    pub mounts: Vec<(String, String)>,
    /// The ids of its rulesets.
    pub rulesets: Vec<String>,
    /// What its launch gave cloud-init.
    pub user_data: Option<String>,
    /// The address that the API shows now.
    pub ip: Option<String>,
    /// Whether whoever makes its host said that sshd answers.
    pub answers: bool,
    /// The port of its host's sshd, when something here made the host.
    pub port: Option<u16>,
    /// A secret that the API shows, and that is to be nowhere else.
    pub jupyter_token: String,
    /// Its price in cents an hour.
    pub cents: u32,
    /// When it was launched: it is paid for from here.
    pub launched: Timestamp,
    /// Until when it was paid for.
    pub ended: Option<Timestamp>,
    /// Whether it is paid for now.
    pub is_billed: bool,
    /// Whether a test put it there.
    pub is_foreign: bool,
}

impl std::fmt::Debug for InstanceSeen {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "{} `{}` {} {} {}", self.id, self.name, self.instance_type, self.region, self.status)
    }
}

/// An SSH key.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SshKeySeen {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The public key.
    pub public_key: String,
}

/// A file system.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FileSystemSeen {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its region.
    pub region: String,
    /// Whether an instance uses it.
    pub is_in_use: bool,
}

/// A firewall ruleset.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RulesetSeen {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its region.
    pub region: String,
    /// Its rules.
    pub rules: Vec<Value>,
    /// The instances that it is attached to.
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
                .map(|key| SshKeySeen {
                    id: key.id.clone(),
                    name: key.name.clone(),
                    public_key: key.public_key.clone(),
                })
                .collect(),
            file_systems: state
                .file_systems
                .iter()
                .map(|system| FileSystemSeen {
                    id: system.id.clone(),
                    name: system.name.clone(),
                    region: system.region.clone(),
                    is_in_use: state.uses_file_system(&system.id),
                })
                .collect(),
            rulesets: state
                .rulesets
                .iter()
                .map(|ruleset| RulesetSeen {
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

    /// Instances that are not terminated, of whom ever.
    pub fn alive(&self) -> impl Iterator<Item = &InstanceSeen> {
        self.instances.iter().filter(|instance| instance.status != "terminated")
    }

    /// Without what tests put there.
    #[must_use]
    pub fn ours(&self) -> Self {
        let mut ours = self.clone();
        ours.instances.retain(|instance| !instance.is_foreign);
        ours
    }

    /// Instances that are there or still end, keys, file systems and rulesets in numbers; what tests put there counts.
    pub fn counts(&self) -> [usize; 4] {
        [self.alive().count(), self.ssh_keys.len(), self.file_systems.len(), self.rulesets.len()]
    }
}

fn seen(state: &State, instance: &Instance, ip: Option<String>) -> InstanceSeen {
    InstanceSeen {
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
