//! How to reach one host.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// How to reach a host by SSH. Absent values come from the user's own configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SshTarget {
    /// A host name, an address, or an alias in the user's configuration.
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
    /// The host's public key, `ssh-ed25519 AAAA…`, if known before the first connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_key: Option<String>,
    /// The name of the host in the same cluster to jump through: `host-0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jump: Option<String>,
    /// How to reach its SSH server where no address leads to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relay: Option<Box<Relay>>,
    /// The address that the cluster's other hosts use for it; by default the one that `ssh` connects to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private_address: Option<String>,
}

/// A command whose input and output are a connection to the SSH server of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Relay {
    /// The machine that the command runs on, known to `ssh` as [`Relay::LOGIN`]; this one when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<Box<SshTarget>>,
    /// The words of the command, which a shell reads: plain words only.
    pub command: Vec<String>,
}

impl Relay {
    /// The name of the machine that relays run on, in the cluster's SSH configuration.
    pub const LOGIN: &'static str = "login";
}

/// What is wrong with one value of a target: its key, and a phrase that follows the key.
pub type TargetFault = (&'static str, &'static str);

impl SshTarget {
    /// The values that must not be written into an `ssh` configuration; empty when all are safe.
    ///
    /// Values come from specs and clouds. A line break in one would start a new key, such as `ProxyCommand`, whose
    /// value `ssh` runs; on a command line, so would a host name that begins with a hyphen.
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
        if let Some(relay) = &self.relay {
            let is_plain = |word: &String| {
                !word.is_empty()
                    && word.chars().all(|letter| letter.is_ascii_alphanumeric() || "._-/=:,@+~".contains(letter))
            };
            let is_odd = relay.command.is_empty() || !relay.command.iter().all(is_plain);
            note("relay", is_odd.then_some("has a word that a shell would change"));
            faults.extend(relay.login.iter().flat_map(|login| login.faults()));
        }
        faults
    }

    /// Reduces the host's key to its kind and its value: a comment may follow them.
    #[must_use]
    pub fn without_key_comment(mut self) -> Self {
        self.host_key = self.host_key.map(|key| key.split_whitespace().take(2).collect::<Vec<_>>().join(" "));
        self
    }

    /// Replaces a leading `~/` in the key's path by this home folder.
    #[must_use]
    pub(super) fn at_home(mut self, home: &Path) -> Self {
        if let Some(relay) = &mut self.relay {
            relay.login = relay.login.take().map(|login| Box::new(login.at_home(home)));
        }
        if let Some(file) = &mut self.identity_file
            && let Ok(below) = file.strip_prefix("~")
            && home.is_absolute()
        {
            *file = home.join(below);
        }
        self
    }
}

/// Why this is not a valid login user; `None` when it is.
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
        Some(text) if text.contains("${") => Some("holds `${`: write the path itself; variables are not expanded"),
        Some(_) => None,
    }
}

/// Why this is not the content of a `.pub` file: a key type and a key.
pub(super) fn host_key_fault(text: &str) -> Option<&'static str> {
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

/// Whether it is a word of letters, digits and `others` that cannot be taken for an option.
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

    /// To some version of `ssh`, each of these is an extra line, an option, or part of a shell command.
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

    #[test]
    fn a_relay_takes_plain_words_and_a_login_that_is_a_target() {
        let relay = |word: &str, login: &str| SshTarget {
            relay: Some(Box::new(Relay {
                login: Some(Box::new(SshTarget { node: login.to_owned(), ..SshTarget::default() })),
                command: vec!["srun".to_owned(), word.to_owned()],
            })),
            ..target()
        };
        assert_eq!(keys(&relay("--jobid=7", "site")), Vec::<&str>::new());
        for word in ["", "a b", "$(id)", "`id`", "a;b", "a\nb", "%h", "'x'", "*"] {
            assert_eq!(keys(&relay(word, "site")), ["relay"], "{word:?}");
        }
        assert_eq!(keys(&relay("x", "-oProxyCommand=sh")), ["node"]);
    }
}
