//! How a claimed node is reached, and what is particular about it.

use super::Slurm;
use super::names::{job_tag, number_of, scope_name, scope_of};
use super::queue::{Node, host_id};
use super::resources::{LOGIN_KEY, NODE_KEY};
use crate::error::{Error, ErrorKind, Result};
use crate::host::{Relay, SshTarget};
use crate::name::Tag;
use crate::provider::{HostPlace, Site};
use crate::secret::key_pair;

impl Slurm {
    /// How to reach a claimed node.
    pub(super) async fn node_place(&self, tag: &Tag, id: &str) -> Result<HostPlace> {
        let doing = format!("find the node of {tag}");
        let failure = |why: String| {
            Error::new(ErrorKind::Provider, doing.clone()).because(why).hint(format!("gpucl status -c {}", tag.cluster))
        };
        let scope = scope_of(tag);
        let seen = self.see().await?;
        let folder = seen.of(&scope).ok_or_else(|| failure("its job is gone".to_owned()))?;
        if folder.claims.get(&tag.key).is_none_or(|claimed| claimed != id) {
            return Err(failure(format!("no claim has this tag and the id {id}")));
        }
        let job = seen.job(&job_tag(&scope)).ok_or_else(|| failure("its job has ended".to_owned()))?;
        let number = number_of(&tag.key).unwrap_or(usize::MAX);
        let node = folder.nodes_of(job).and_then(|nodes| nodes.get(number).copied().cloned());
        let node = node.filter(|_| *id == host_id(job, number)).ok_or_else(|| failure(job.describe()))?;
        let clusters = self.context.clusters_dir.join(tag.cluster.as_str());
        let words = ["sh", &format!("~/.gpucl/slurm/{}/reach", scope_name(&scope)), &node.node, &node.socket];
        let relay =
            Relay { login: self.login.target().await?.map(Box::new), command: words.map(str::to_owned).to_vec() };
        let is_here = relay.login.is_none();
        Ok(HostPlace::Ssh {
            target: SshTarget {
                node: node.node.clone(),
                user: Some(node.user.clone()).filter(|user| !user.is_empty()),
                port: None,
                identity_file: key_pair(&clusters, LOGIN_KEY).map(|pair| pair.file),
                host_key: key_pair(&clusters, NODE_KEY).map(|pair| pair.public),
                jump: None,
                relay: Some(Box::new(if is_here {
                    at_home(relay, &self.context.user_environment.home)
                } else {
                    relay
                })),
                private_address: node.addresses.first().cloned(),
            },
            site: Box::new(self.site_of(&node, tag)),
        })
    }

    /// What is particular about a node.
    fn site_of(&self, node: &Node, tag: &Tag) -> Site {
        let any = self.site_settings();
        let environments = match any.environments.strip_prefix("~/") {
            Some(below) => format!("{}/{below}", node.home),
            None if any.environments.is_empty() => format!("{}/environments", node.own),
            None => any.environments,
        };
        Site { folder: format!("{}/{tag}", node.own), environments, ..any }
    }

    /// What is particular about all nodes.
    pub(super) fn site_settings(&self) -> Site {
        Site {
            folder: String::new(),
            environments: match self.settings.environment.as_deref() {
                None | Some("node") => String::new(),
                Some("home") => "~/.gpucl/environments".to_owned(),
                Some(folder) => folder.to_owned(),
            },
            modules: self.settings.modules.clone(),
            packages: self.settings.packages(),
            open_network: true,
        }
    }
}

/// On this machine no shell expands the leading `~`.
fn at_home(mut relay: Relay, home: &std::path::Path) -> Relay {
    for word in &mut relay.command {
        if let Some(below) = word.strip_prefix("~/") {
            *word = home.join(below).display().to_string();
        }
    }
    relay
}
