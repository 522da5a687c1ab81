//! Interprets the messages of an `ssh` that did not connect: wait, retry, or fail.

use super::config::{ANOTHER_MACHINE, Block, Trust};
use crate::error::{Error, ErrorKind, Status};

/// Why there is no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// Nothing listens on the port, yet.
    Refused,
    /// No answer, yet.
    TimedOut,
    /// No route to the address, yet.
    NoRoute,
    /// The name does not resolve.
    UnknownName,
    /// The server accepts and hangs up: it is starting, or has too many connections.
    HungUp,
    /// The machine reports that it is still booting.
    Booting,
    /// No key was accepted.
    Denied,
    /// The host key differs from the known one.
    KeyChanged,
    /// No host key is known, and a new one must not be accepted.
    KeyUnknown,
    /// The user's private key is readable by others.
    BadIdentity,
    /// The configuration has a mistake.
    BadConfiguration,
    /// The path of the control socket is too long.
    LongPath,
    /// `ssh` is not installed.
    NoProgram,
    /// `ssh` ended without any output.
    Silent,
    /// Something else.
    Other,
}

/// Whether to try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Retry {
    /// Retry for as long as the caller waits.
    Waits,
    /// Retry for a few minutes, for a caller that waits for a machine being created.
    Provisioning,
    /// Retry shortly: it passes in a moment.
    Soon,
    /// The user has to do something.
    Never,
}

/// Why there is no connection, with the output of `ssh`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) cause: Cause,
    pub(super) said: String,
}

impl Trouble {
    /// Determines the cause from the output of `ssh`.
    pub(super) fn of(text: &str) -> Self {
        // The first match decides: later ones are more general.
        const SIGNS: &[(&str, Cause)] = &[
            ("REMOTE HOST IDENTIFICATION HAS CHANGED", Cause::KeyChanged),
            ("host key is known for", Cause::KeyUnknown),
            ("System is booting up", Cause::Booting),
            ("UNPROTECTED PRIVATE KEY FILE", Cause::BadIdentity),
            ("Too many authentication failures", Cause::Denied),
            ("Permission denied (", Cause::Denied),
            ("Host key verification failed", Cause::KeyUnknown),
            ("Bad configuration option", Cause::BadConfiguration),
            ("bad configuration options", Cause::BadConfiguration),
            ("too long for Unix domain socket", Cause::LongPath),
            ("ControlPath too long", Cause::LongPath),
            ("Could not resolve hostname", Cause::UnknownName),
            ("Connection refused", Cause::Refused),
            ("timed out", Cause::TimedOut),
            ("No route to host", Cause::NoRoute),
            ("Network is unreachable", Cause::NoRoute),
            ("Host is down", Cause::NoRoute),
            ("kex_exchange_identification", Cause::HungUp),
            ("banner exchange", Cause::HungUp),
            ("Connection reset by", Cause::HungUp),
            ("Connection closed by", Cause::HungUp),
            ("closed by remote host", Cause::HungUp),
            ("Broken pipe", Cause::HungUp),
        ];
        let cause = match SIGNS.iter().find(|(sign, _)| text.contains(sign)) {
            Some((_, cause)) => *cause,
            None if text.trim().is_empty() => Cause::Silent,
            None => Cause::Other,
        };
        Self { cause, said: text.trim().to_owned() }
    }

    /// Whether to retry; an unresolved name and a refused key only for a patient caller, whose machine is being
    /// created.
    pub(super) fn retry(&self, is_patient: bool) -> Retry {
        match self.cause {
            Cause::Refused | Cause::TimedOut | Cause::NoRoute | Cause::Booting => Retry::Waits,
            Cause::UnknownName if is_patient => Retry::Waits,
            // The server may answer before the user and its key exist.
            Cause::Denied if is_patient => Retry::Provisioning,
            Cause::HungUp | Cause::Silent => Retry::Soon,
            _ => Retry::Never,
        }
    }

    /// A few words for the waiting message.
    pub(super) fn in_short(&self) -> &'static str {
        match self.cause {
            Cause::Refused => "connection refused",
            Cause::TimedOut => "no answer",
            Cause::NoRoute => "no route to host",
            Cause::UnknownName => "its name does not resolve",
            Cause::HungUp => "connection closed",
            Cause::Booting => "it is booting",
            Cause::Silent => "ssh printed nothing",
            Cause::Denied => "key not accepted yet",
            _ => "no connection",
        }
    }

    /// The line that says what went wrong.
    fn line(&self) -> String {
        let chatter =
            |line: &&str| !line.is_empty() && !line.starts_with('@') && !line.starts_with("Warning: Permanently added");
        let marked = |line: &&str| match self.cause {
            Cause::Denied => line.contains("Permission denied (") || line.contains("Too many authentication"),
            Cause::Booting => line.contains("booting up"),
            Cause::BadConfiguration => line.contains("onfiguration option"),
            _ => false,
        };
        let lines = || self.said.lines().map(str::trim).filter(chatter);
        let line = lines().find(marked).or_else(|| lines().next_back()).unwrap_or("ssh printed nothing");
        line.strip_prefix("ssh: ").unwrap_or(line).trim_end_matches('.').to_owned()
    }

    /// The text between two markers in the output of `ssh`.
    fn between(&self, before: &str, after: char) -> Option<&str> {
        let rest = &self.said[self.said.find(before)? + before.len()..];
        rest.split(after).next().map(str::trim).filter(|found| !found.is_empty())
    }

    /// The error to show to the user.
    pub(super) fn error(&self, block: &Block) -> Error {
        let (name, user, address, port) = (block.name(), block.user(), block.address(), block.port());
        let there = if port == 22 { address.to_owned() } else { format!("{address} port {port}") };
        let error = Error::new(ErrorKind::Host, format!("connect to {name} ({user}@{there})"));
        let status = if self.retry(false) == Retry::Never { Status::Permanent } else { Status::Temporary };
        let error = error.status(status);
        match self.cause {
            Cause::KeyChanged => self.key_changed(error, block),
            Cause::Denied => denied(error.because(self.line()), block),
            Cause::KeyUnknown => error.because(self.line()).hint(format!(
                "the host offers no key of the known type; see its keys: ssh-keyscan -p {port} {address}"
            )),
            Cause::BadIdentity => error
                .because("other users can read the private key, so ssh does not use it")
                .because(self.line())
                .hint("chmod 600 THE-KEY"),
            Cause::BadConfiguration => error
                .because(self.line())
                .hint("ssh -V   # it must be OpenSSH 8 or newer: older ones do not know all options that are used")
                .hint(format!("ssh -G {}   # shows what is wrong with your configuration", block.entry.target.node)),
            Cause::LongPath => error
                .because(self.line())
                .hint("set XDG_RUNTIME_DIR to a folder with a short path, such as one below /run/user or /tmp"),
            Cause::NoProgram => super::tool::no_program("ssh"),
            Cause::UnknownName => error.because(self.line()).hint(format!(
                "`node:` takes a name, an address or an alias of ~/.ssh/config; try: ssh -G {}",
                block.entry.target.node
            )),
            Cause::Refused => error
                .because(self.line())
                .hint("nothing listens there: is its SSH server running, and is the port right?"),
            Cause::TimedOut | Cause::NoRoute => error
                .because(self.line())
                .hint(format!("is it on, and does a firewall let you in? try: nc -vz {address} {port}")),
            _ => error.because(self.line()),
        }
    }

    fn key_changed(&self, error: Error, block: &Block) -> Error {
        let mut error = error.because("its host key differs from the known one");
        if let Some(fingerprint) = self.said.lines().map(str::trim).find(|line| line.starts_with("SHA256:")) {
            error = error.because(format!("its key is now {}", fingerprint.trim_end_matches('.')));
        }
        let place =
            self.said.lines().find(|line| line.starts_with("Offending")).and_then(|line| line.split(" in ").nth(1));
        if let Some(place) = place {
            error = error.because(format!("the known key is in {}", place.trim()));
        }
        let name = block.name();
        error = error.hint(
            "unless the machine was reinstalled, stop here: somebody may be intercepting the connection. On its \
             console, `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` shows its real key",
        );
        match (block.trust, self.between("  ssh-keygen -f ", '\n')) {
            (Trust::FirstUse, _) => error.hint(format!("to accept the new key: gpucl ssh --forget-host-key {name}")),
            (Trust::Users, Some(command)) => error.hint(format!("to accept the new key: ssh-keygen -f {command}")),
            (Trust::Users, None) => error.hint(format!("to accept the new key: ssh-keygen -R {}", block.address())),
            (Trust::Given, _) => error.hint(block.where_key_is_given()),
            (Trust::Made, _) => error.hint(ANOTHER_MACHINE),
        }
    }
}

/// Adds which user was refused and which keys were tried.
fn denied(error: Error, block: &Block) -> Error {
    let (target, resolved) = (&block.entry.target, &block.resolved);
    let error = error.because(match &target.identity_file {
        Some(file) => format!("as the user {}, with the key {}", block.user(), file.display()),
        None => {
            let files = resolved.with.iter().filter(|(key, _)| key == "identityfile").map(|(_, file)| file.as_str());
            let files: Vec<&str> = files.collect();
            format!("as the user {}, with the keys of your agent and {}", block.user(), files.join(", "))
        }
    });
    let error = error.hint("ssh-add -l   # shows the keys of your agent");
    let error = if target.identity_file.is_none() {
        error.hint("name the key with `identity_file:` in that entry of `hosts:`, or below `provider:` for all")
    } else {
        error
    };
    if target.user.is_none() && block.resolved.value("user") == Some(block.user()) {
        error.hint("name the user with `user:`; cloud images have `ubuntu`, `cc` or `debian`")
    } else {
        error
    }
}

#[cfg(test)]
mod tests {
    use super::super::SshTarget;
    use super::super::config::{HostEntry, Resolved};
    use super::*;

    const CHANGED: &str = "\
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!
The fingerprint for the ED25519 key sent by the remote host is
SHA256:qBcT9Rs1fup4NsCWzkvrjj6oR+/yOahWtib9Zej3wYg.
Please contact your system administrator.
Add correct host key in lab/kh to get rid of this message.
Offending ED25519 key in lab/kh:1
  remove with:
  ssh-keygen -f \"lab/kh\" -R \"[127.0.0.1]:2222\"
Host key for [127.0.0.1]:2222 has changed and you have requested strict checking.
Host key verification failed.";

    fn block(trust: Trust) -> Block {
        let target = SshTarget { node: "gpu1".to_owned(), ..SshTarget::default() };
        let resolved = Resolved::of_texts("user ada\nhostname gpu1\nidentityfile ~/.ssh/id_x\n", "");
        Block { entry: HostEntry { names: vec!["host-0".to_owned()], target }, resolved, trust, users_master: None }
    }

    /// The messages of OpenSSH 9.2.
    #[test]
    fn each_text_means_one_thing() {
        let first = "Warning: Permanently added 'x' (ED25519) to the list of known hosts.\r\n";
        for (text, cause, retry) in [
            ("connect to host 127.0.0.1 port 2223: Connection refused", Cause::Refused, Retry::Waits),
            ("connect to host 10.0.0.1 port 22: Connection timed out", Cause::TimedOut, Retry::Waits),
            ("Connection timed out during banner exchange", Cause::TimedOut, Retry::Waits),
            ("connect to host 10.0.0.1 port 22: No route to host", Cause::NoRoute, Retry::Waits),
            ("connect to host 10.0.0.1 port 22: Network is unreachable", Cause::NoRoute, Retry::Waits),
            ("Could not resolve hostname gpu: Name or service not known", Cause::UnknownName, Retry::Never),
            ("kex_exchange_identification: Connection closed by remote host", Cause::HungUp, Retry::Soon),
            (
                "kex_exchange_identification: read: Connection reset by peer\nConnection reset by 127.0.0.1 port 2222",
                Cause::HungUp,
                Retry::Soon,
            ),
            (
                "root@127.0.0.1: Permission denied (publickey,password,keyboard-interactive).",
                Cause::Denied,
                Retry::Never,
            ),
            (&format!("{first}root@127.0.0.1: Permission denied (publickey)."), Cause::Denied, Retry::Never),
            (
                "Received disconnect from 1.2.3.4 port 22:2: Too many authentication failures",
                Cause::Denied,
                Retry::Never,
            ),
            (CHANGED, Cause::KeyChanged, Retry::Never),
            (
                "No ED25519 host key is known for [127.0.0.1]:2222 and you have requested strict checking.\nHost key verification failed.",
                Cause::KeyUnknown,
                Retry::Never,
            ),
            (
                "\"System is booting up. Unprivileged users are not permitted to log in yet.\"\nConnection closed by 10.0.0.1 port 22",
                Cause::Booting,
                Retry::Waits,
            ),
            ("unix_listener: path \"/very/long\" too long for Unix domain socket", Cause::LongPath, Retry::Never),
            ("", Cause::Silent, Retry::Soon),
            ("something new", Cause::Other, Retry::Never),
        ] {
            let trouble = Trouble::of(text);
            assert_eq!((trouble.cause, trouble.retry(false)), (cause, retry), "{text}");
        }
        assert_eq!(Trouble::of("Could not resolve hostname gpu: x").retry(true), Retry::Waits);
    }

    /// As OpenSSH 7.2 says it.
    #[test]
    fn an_ssh_that_does_not_know_our_options_is_asked_for_its_version() {
        let trouble = Trouble::of("/state/clusters/t/ssh_config.own: line 7: Bad configuration option: include\n");
        let error = trouble.error(&block(Trust::FirstUse));
        assert_eq!(error.retry_status(), Status::Permanent);
        assert!(error.hints()[0].starts_with("ssh -V   # it must be OpenSSH 8 or newer"), "{:?}", error.hints());
    }

    #[test]
    fn a_refused_login_names_the_user_and_the_keys() {
        let error = Trouble::of("Warning: Permanently added 'x'.\nada@gpu1: Permission denied (publickey).")
            .error(&block(Trust::FirstUse));
        assert_eq!(error.doing(), "connect to host-0 (ada@gpu1)");
        assert_eq!(
            error.causes(),
            ["ada@gpu1: Permission denied (publickey)", "as the user ada, with the keys of your agent and ~/.ssh/id_x"]
        );
        let hints = error.hints().join("\n");
        assert!(["ssh-add -l", "identity_file:", "user:"].iter().all(|word| hints.contains(word)), "{hints}");
        assert_eq!(error.retry_status(), Status::Permanent);
    }

    #[test]
    fn a_changed_key_names_both_keys_and_the_way_out() {
        for (trust, way_out) in [
            (Trust::FirstUse, "gpucl ssh --forget-host-key host-0"),
            (Trust::Users, "ssh-keygen -f \"lab/kh\" -R \"[127.0.0.1]:2222\""),
            (Trust::Given, "`host_key:` in that entry of `hosts:`"),
            (Trust::Made, "for another machine in its place: gpucl down"),
        ] {
            let error = Trouble::of(CHANGED).error(&block(trust));
            let text = error.to_string();
            assert!(text.contains("SHA256:qBcT9Rs1fup4NsCWzkvrjj6oR+/yOahWtib9Zej3wYg:"), "{text}");
            assert!(text.ends_with("the known key is in lab/kh:1"), "{text}");
            assert!(error.hints().last().is_some_and(|hint| hint.contains(way_out)), "{:?}", error.hints());
            let names_spec = error.hints().iter().any(|hint| hint.contains("hosts:"));
            assert_eq!(names_spec, trust == Trust::Given, "{:?}", error.hints());
        }
        // The machine that relays run on has no entry of `hosts:`.
        let mut login = block(Trust::Given);
        login.entry.names = vec!["login".to_owned()];
        let error = Trouble::of(CHANGED).error(&login);
        assert!(error.hints().last().is_some_and(|hint| hint.contains("below `provider:`")), "{:?}", error.hints());
    }
}
