//! How one host is reached.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// How a host is reached by SSH. What is absent is as the user's own configuration says.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SshTarget {
    /// A host name, an address, or an alias of the user's configuration.
    pub node: String,
    /// The user to log in as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The port of the SSH server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The private key to log in with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity_file: Option<PathBuf>,
    /// The host's public key, `ssh-ed25519 AAAA…`, where it is known before the first connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_key: Option<String>,
    /// The host of the same cluster that it is reached through, by its name: `host-0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jump: Option<String>,
    /// The address that the other hosts of the cluster reach it by; by default the one that it is reached by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private_address: Option<String>,
}

/// What is wrong with one value of a target: its key, and a sentence that follows on the key.
pub type TargetFault = (&'static str, &'static str);

impl SshTarget {
    /// What of it must not be written into a configuration of `ssh`; nothing when all of it may.
    ///
    /// Its values come from specs and from clouds. A line break in one of them would begin a key of its own, `ProxyCommand` for
    /// one, whose value `ssh` runs; so would a host that begins with a hyphen on a command line.
    pub fn faults(&self) -> Vec<TargetFault> {
        let mut faults = Vec::new();
        let mut note = |key, fault: Option<&'static str>| faults.extend(fault.map(|message| (key, message)));
        note("node", node_fault(&self.node));
        note("user", self.user.as_deref().and_then(user_fault));
        note("port", (self.port == Some(0)).then_some("must be between 1 and 65535"));
        note("identity_file", self.identity_file.as_deref().and_then(identity_file_fault));
        note("host_key", self.host_key.as_deref().and_then(host_key_fault));
        note("jump", self.jump.as_deref().filter(|jump| !is_made_of(jump, "-")).map(|_| "is not the name of a host"));
        let address = self.private_address.as_deref().filter(|address| !is_made_of(address, "._-:"));
        note("private_address", address.map(|_| "is not an address"));
        faults
    }

    /// The same, with a leading `~/` of the key's path taken for this home folder.
    #[must_use]
    pub(super) fn at_home(mut self, home: &Path) -> Self {
        if let Some(file) = &mut self.identity_file
            && let Ok(below) = file.strip_prefix("~")
            && home.is_absolute()
        {
            *file = home.join(below);
        }
        self
    }
}

/// Why this is not the name of a user to log in as.
pub fn user_fault(user: &str) -> Option<&'static str> {
    (!is_made_of(user, "._-@+")).then_some("is not a user name")
}

fn node_fault(node: &str) -> Option<&'static str> {
    if node.contains('@') {
        Some("holds a user; write it as `user:`")
    } else if node.contains('[') || node.matches(':').count() == 1 {
        Some("holds a port; write it as `port:`")
    } else if !is_made_of(node, "._-:%+") {
        Some("is not the name of a host: it takes a name, an address, or an alias of ~/.ssh/config")
    } else {
        None
    }
}

fn identity_file_fault(file: &Path) -> Option<&'static str> {
    match file.to_str() {
        None | Some("") => Some("is not a path"),
        Some(text) if text.chars().any(char::is_control) => Some("holds a control character, such as a line break"),
        Some(text) if text.contains("${") => Some("holds `${`: write the path itself; variables are not read here"),
        Some(_) => None,
    }
}

/// Why this is not what stands in a `.pub` file: a kind and a key.
fn host_key_fault(text: &str) -> Option<&'static str> {
    let kinds = ["ssh-", "ecdsa-", "sk-ssh-", "sk-ecdsa-"];
    let mut words = text.split_whitespace();
    let is_key = match (words.next(), words.next()) {
        (Some(kind), Some(key)) => {
            kinds.iter().any(|begin| kind.starts_with(begin))
                && key.starts_with("AAAA")
                && key.chars().all(|letter| letter.is_ascii_alphanumeric() || "+/=".contains(letter))
        }
        _ => false,
    };
    let is_line = !text.trim_end().chars().any(char::is_control);
    (!is_key || !is_line).then_some(
        "is not a public key: one looks like `ssh-ed25519 AAAA…`, as in /etc/ssh/ssh_host_ed25519_key.pub there",
    )
}

/// A word of letters, digits and these that cannot be taken for an option.
fn is_made_of(text: &str, others: &str) -> bool {
    !text.is_empty()
        && !text.starts_with('-')
        && text.chars().all(|letter| letter.is_alphanumeric() || others.contains(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> SshTarget {
        SshTarget { node: "gpu1".to_owned(), ..SshTarget::default() }
    }

    fn keys(target: &SshTarget) -> Vec<&'static str> {
        target.faults().into_iter().map(|(key, _)| key).collect()
    }

    /// Each of these is one line too many, an option, or a piece of a shell command to some version of `ssh`.
    #[test]
    fn whatever_would_be_more_than_a_value_is_refused() {
        let attacks = [
            "x\nProxyCommand=touch /tmp/x",
            "x\rProxyCommand touch",
            "x\0y",
            "x\u{85}y",
            "-oProxyCommand=sh",
            "$(id)",
            "`id`",
            "a;id",
            "a|id",
            "a b",
            "a\"b",
            "a'b",
            "a\\b",
            "",
        ];
        for attack in attacks {
            assert_eq!(keys(&SshTarget { node: attack.to_owned(), ..target() }), ["node"], "{attack:?}");
            let text = || Some(attack.to_owned());
            assert_eq!(keys(&SshTarget { user: text(), ..target() }), ["user"], "{attack:?}");
            assert_eq!(keys(&SshTarget { jump: text(), ..target() }), ["jump"], "{attack:?}");
            assert_eq!(keys(&SshTarget { private_address: text(), ..target() }), ["private_address"], "{attack:?}");
            assert_eq!(keys(&SshTarget { host_key: text(), ..target() }), ["host_key"], "{attack:?}");
        }
        for attack in ["x\nProxyCommand=touch /tmp/x", "a\rb", "${HOME}/key", ""] {
            assert_eq!(keys(&SshTarget { identity_file: Some(attack.into()), ..target() }), ["identity_file"]);
        }
        assert_eq!(
            keys(&SshTarget { host_key: Some("ssh-rsa AAAA\nx ssh-rsa AAAA".to_owned()), ..target() }),
            ["host_key"]
        );
        assert_eq!(
            keys(&SshTarget { user: Some("100%".to_owned()), ..target() }),
            ["user"],
            "a token to newer versions"
        );
        assert_eq!(keys(&SshTarget { port: Some(0), ..target() }), ["port"]);
    }

    #[test]
    fn what_people_write_passes() {
        for node in ["gpu1", "lab_box.example.org", "10.0.0.7", "2001:db8::1", "fe80::1%eth0", "büro"] {
            assert_eq!(keys(&SshTarget { node: node.to_owned(), ..target() }), Vec::<&str>::new(), "{node}");
        }
        let whole = SshTarget {
            user: Some("ada.l-b_c@lab".to_owned()),
            port: Some(2222),
            identity_file: Some("~/my keys/50%/\"id\"".into()),
            host_key: Some("ssh-ed25519 AAAAC3Nz comment\n".to_owned()),
            jump: Some("host-0".to_owned()),
            private_address: Some("192.168.1.12".to_owned()),
            ..target()
        };
        assert_eq!(keys(&whole), Vec::<&str>::new());
    }

    #[test]
    fn only_a_leading_tilde_is_the_home_folder() {
        let at = |file: &str| {
            let target = SshTarget { identity_file: Some(file.into()), ..target() };
            target.at_home(Path::new("/home/ada")).identity_file.unwrap().display().to_string()
        };
        assert_eq!(at("~/.ssh/lab"), "/home/ada/.ssh/lab");
        for other in ["/keys/~/x", "~bob/key", "keys/lab"] {
            assert_eq!(at(other), other);
        }
    }
}
