//! The `ssh_config` and `known_hosts` of a cluster.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::SshTarget;

/// A host under the names that it is called by in the cluster's `ssh_config`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostEntry {
    /// Its names, its own first: `host-0`, `head`, `worker-1`.
    pub names: Vec<String>,
    /// How it is reached.
    pub target: SshTarget,
}

/// What `ssh -G` says of a destination that matters for reaching it. All else is the user's configuration's to say.
const CARRIED: &[&str] = &[
    "hostname",
    "user",
    "port",
    "identityfile",
    "identityagent",
    "certificatefile",
    "proxyjump",
    "proxycommand",
    "pkcs11provider",
    "securitykeyprovider",
];

/// What the user's own configuration comes to for a destination, by `ssh -G`; nothing when that cannot be asked.
pub(super) fn resolved(node: &str) -> Vec<(String, String)> {
    let asked = Command::new("ssh").args(["-G", "--", node]).stdin(Stdio::null()).output();
    let Ok(output) = asked else { return Vec::new() };
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(key, value)| CARRIED.contains(key) && !matches!(*value, "none" | "internal" | "$SSH_SK_PROVIDER"))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// The text of the cluster's `ssh_config`. `resolve` tells what the user's own configuration says of a destination.
pub(super) fn config_text(
    entries: &[HostEntry],
    folder: &Path,
    resolve: impl Fn(&str) -> Vec<(String, String)>,
) -> String {
    let mut text = String::from(
        "# Written by gpucl for this cluster's hosts. `ssh -F THIS host-0` works as `gpucl ssh host-0` does.\n",
    );
    let known_hosts = folder.join("known_hosts").display().to_string();
    for entry in entries {
        let target = &entry.target;
        let own = |key: &str| match key {
            "user" => target.user.clone(),
            "port" => target.port.map(|port| port.to_string()),
            "identityfile" => target.identity_file.as_ref().map(|path| path.display().to_string()),
            _ => None,
        };
        let _ = writeln!(text, "\nHost {}", entry.names.join(" "));
        let mut hostname = false;
        for (key, value) in resolve(&target.node).iter().filter(|(key, _)| own(key).is_none()) {
            hostname |= key == "hostname";
            let _ = writeln!(text, "    {key} {}", quoted(key, value));
        }
        if !hostname {
            let _ = writeln!(text, "    hostname {}", target.node);
        }
        for key in ["user", "port", "identityfile"] {
            if let Some(value) = own(key) {
                let _ = writeln!(text, "    {key} {}", quoted(key, &value));
            }
        }
        if target.identity_file.is_some() {
            text.push_str("    IdentitiesOnly yes\n");
        }
        if target.host_key.is_some() {
            // Known before the first connection: no other file is asked, and a reused address means nothing.
            let alias = alias(entry);
            let _ = writeln!(text, "    HostKeyAlias {alias}\n    UserKnownHostsFile \"{known_hosts}\"");
            text.push_str("    GlobalKnownHostsFile /dev/null\n    StrictHostKeyChecking yes\n");
        } else {
            let _ = writeln!(text, "    UserKnownHostsFile \"{known_hosts}\" ~/.ssh/known_hosts ~/.ssh/known_hosts2");
            text.push_str("    StrictHostKeyChecking accept-new\n");
        }
        // A hashed line could not be told from another host's.
        text.push_str("    HashKnownHosts no\n    UpdateHostKeys no\n");
        text.push_str("    ServerAliveInterval 15\n    ServerAliveCountMax 4\n    ConnectTimeout 10\n");
        text.push_str(
            "    RemoteCommand none\n    RequestTTY auto\n    ClearAllForwardings yes\n    ControlPath none\n",
        );
    }
    // What an `Include` says would else belong to the last block above.
    text.push_str("\nMatch all\nInclude ~/.ssh/config\nInclude /etc/ssh/ssh_config\n");
    text
}

/// The name under which a host's key is known.
fn alias(entry: &HostEntry) -> String {
    format!("gpucl-{}", entry.names.first().map_or("host", String::as_str))
}

/// The lines of `known_hosts` that are known before the first connection, for hosts that have one.
pub(super) fn pinned_keys(entries: &[HostEntry]) -> Vec<String> {
    let pinned = |entry: &HostEntry| Some(format!("{} {}", alias(entry), entry.target.host_key.as_ref()?.trim()));
    entries.iter().filter_map(pinned).collect()
}

/// A value that is one word; a path may have blanks. Commands stay as they are.
fn quoted(key: &str, value: &str) -> String {
    if key != "proxycommand" && value.contains(' ') { format!("\"{value}\"") } else { value.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(node: &str) -> HostEntry {
        let target = SshTarget { node: node.to_owned(), ..SshTarget::default() };
        HostEntry { names: vec!["host-0".to_owned(), "head".to_owned()], target }
    }

    #[test]
    fn what_an_alias_of_the_user_means_is_written_into_our_block() {
        let told = vec![
            ("hostname".to_owned(), "10.0.0.7".to_owned()),
            ("user".to_owned(), "ubuntu".to_owned()),
            ("proxyjump".to_owned(), "gate".to_owned()),
        ];
        let mut lab = entry("lab");
        lab.target.user = Some("me".to_owned());
        let text = config_text(&[lab], Path::new("/s"), |_| told.clone());
        let block = text.split("Match all").next().unwrap();
        assert!(block.contains("Host host-0 head\n    hostname 10.0.0.7\n    proxyjump gate\n    user me\n"), "{text}");
        assert!(block.contains("accept-new") && !block.contains("IdentitiesOnly"), "{text}");
        assert!(text.ends_with("Match all\nInclude ~/.ssh/config\nInclude /etc/ssh/ssh_config\n"));
    }

    #[test]
    fn a_key_that_is_known_before_is_the_only_one() {
        let mut host = entry("203.0.113.5");
        host.target.host_key = Some("ssh-ed25519 AAAA".to_owned());
        host.target.identity_file = Some("/a b/key".into());
        let text = config_text(&[host.clone()], Path::new("/s"), |_| Vec::new());
        assert!(text.contains("StrictHostKeyChecking yes") && text.contains("HostKeyAlias gpucl-host-0"), "{text}");
        assert!(
            text.contains("    hostname 203.0.113.5\n    identityfile \"/a b/key\"\n    IdentitiesOnly yes\n"),
            "{text}"
        );
        assert_eq!(pinned_keys(&[host]), ["gpucl-host-0 ssh-ed25519 AAAA"]);
    }
}
