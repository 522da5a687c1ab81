//! What `ssh` says when it does not get there, in our words, and whether waiting may help.

use crate::error::{Error, ErrorKind, Status};

/// Why a connection was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// Nobody listens: the machine is up, its server is not yet, or the port is wrong.
    Refused,
    /// No answer at all.
    TimedOut,
    /// There is no way there.
    NoRoute,
    /// The name is not known.
    UnknownName,
    /// The server takes no more for a moment, or is about to start.
    Turned,
    /// The server does not know this user with these keys.
    Denied,
    /// The host shows another key than the one that is known.
    HostKeyChanged,
    /// The key is not the one that the spec names, or none is known.
    HostKeyUnknown,
    /// Something else.
    Other,
}

impl Why {
    /// Reads what `ssh` printed.
    pub(super) fn of(said: &str) -> Self {
        let has = |text: &str| said.contains(text);
        if has("REMOTE HOST IDENTIFICATION HAS CHANGED") {
            Self::HostKeyChanged
        } else if has("Host key verification failed") || has("host key is known") {
            Self::HostKeyUnknown
        } else if has("Permission denied (") || has("Too many authentication failures") {
            Self::Denied
        } else if has("Could not resolve hostname") {
            Self::UnknownName
        } else if has("Connection refused") {
            Self::Refused
        } else if has("timed out") || has("Timeout") {
            Self::TimedOut
        } else if has("No route to host") || has("Network is unreachable") || has("Host is down") {
            Self::NoRoute
        } else if has("kex_exchange_identification")
            || has("Connection reset")
            || has("Connection closed by")
            || has("banner")
        {
            Self::Turned
        } else {
            Self::Other
        }
    }

    /// Whether it may be another a moment later.
    pub(super) fn may_pass(self) -> bool {
        matches!(self, Self::Refused | Self::TimedOut | Self::NoRoute | Self::Turned | Self::Other)
    }

    /// In words, for what is waited for.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Refused => "nobody listens on its SSH port",
            Self::TimedOut => "it does not answer",
            Self::NoRoute => "there is no route to it",
            Self::UnknownName => "its name is not known",
            Self::Turned => "its SSH server closed the connection",
            Self::Denied => "it does not let this user in",
            Self::HostKeyChanged => "it shows another host key than the one that is known",
            Self::HostKeyUnknown => "its host key is not the one that is known",
            Self::Other => "ssh failed",
        }
    }
}

/// The error of a connection that was not made.
pub(super) fn error(name: &str, node: &str, config: &str, said: &str) -> Error {
    let why = Why::of(said);
    let status = if why.may_pass() { Status::Temporary } else { Status::Permanent };
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    let mut error =
        Error::new(ErrorKind::Host, format!("connect to {name} ({node})")).status(status).because(why.words());
    if !last.is_empty() {
        error = error.because(format!("ssh said: {last}"));
    }
    let try_it = format!("ssh -F {config} {name}   # the same connection by hand");
    match why {
        Why::Denied => error
            .hint("name the right `user:` and `identity_file:` in the spec, or load the key: ssh-add -l shows what the agent has")
            .hint(try_it),
        Why::HostKeyChanged => {
            let place = said.lines().find_map(|line| line.trim().strip_prefix("Offending ")).unwrap_or_default();
            let place = place.rsplit(' ').next().unwrap_or_default().trim_end_matches('\r');
            let (file, line) = place.rsplit_once(':').unwrap_or((place, ""));
            error
                .because("either the machine was made anew under the same address, or somebody stands in between")
                .hint(format!("compare the key on the machine's console; if it is right: sed -i '{line}d' {file}"))
        }
        Why::HostKeyUnknown => error.hint(
            "compare `host_key:` in the spec with what the machine's console or `ssh-keyscan` shows, and correct it",
        ),
        Why::UnknownName => error.hint("check `node:` in the spec: a host name, an address, or a Host of ~/.ssh/config"),
        _ => error.hint(try_it),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ssh_says_is_told_apart() {
        for (said, why) in [
            ("ssh: connect to host 10.0.0.1 port 22: Connection refused", Why::Refused),
            ("ssh: connect to host 10.0.0.1 port 22: Connection timed out", Why::TimedOut),
            ("ssh: connect to host 10.0.0.1 port 22: No route to host", Why::NoRoute),
            ("ssh: Could not resolve hostname nowhere: Name or service not known", Why::UnknownName),
            ("kex_exchange_identification: Connection closed by remote host", Why::Turned),
            ("cc@10.0.0.1: Permission denied (publickey).", Why::Denied),
            (
                "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.",
                Why::HostKeyChanged,
            ),
            (
                "No ED25519 host key is known for x and you have requested strict checking.\nHost key verification failed.",
                Why::HostKeyUnknown,
            ),
            ("Connection timed out during banner exchange", Why::TimedOut),
        ] {
            assert_eq!(Why::of(said), why, "{said}");
        }
    }

    #[test]
    fn a_changed_key_names_the_line_to_remove() {
        let said = "Offending ED25519 key in /s/known_hosts:3\nREMOTE HOST IDENTIFICATION HAS CHANGED!\nHost key verification failed.";
        let error = error("host-0", "10.0.0.1", "/s/ssh_config", said);
        assert!(error.hints().iter().any(|hint| hint.contains("sed -i '3d' /s/known_hosts")), "{:?}", error.hints());
    }
}
