//! The text of a cluster's `ssh_config` and `known_hosts`. Pure: [`super::tool`] collects the input.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::host_keys::HostKeys;
use super::{Relay, SshTarget};
use crate::error::{Error, ErrorKind, Result};
use crate::render::quote;
use crate::util::runtime_dir::check_for_ssh;

/// The keys copied from the user's own configuration for a host into our block for it, as `ssh -G` names them.
///
/// The others are left to the user's file, which ours includes, or are overridden: multiplexing, remote commands,
/// terminals and forwards, which suit a shell and not a tool, and everything about host keys.
const CARRIED: &[&str] = &[
    "proxyjump",
    "proxycommand",
    "proxyusefdpass",
    "certificatefile",
    "identityagent",
    "identitiesonly",
    "pkcs11provider",
    "securitykeyprovider",
    "addkeystoagent",
    "addressfamily",
    "bindaddress",
    "bindinterface",
    "ciphers",
    "macs",
    "kexalgorithms",
    "hostkeyalgorithms",
    "pubkeyacceptedalgorithms",
    "casignaturealgorithms",
    "pubkeyauthentication",
    "preferredauthentications",
    "gssapiauthentication",
    "compression",
    "requiredrsasize",
    "ipqos",
];

/// The keys whose value is one word, so that spaces in it must be quoted.
const WORDS: &[&str] = &["certificatefile", "identityagent", "pkcs11provider", "securitykeyprovider"];

/// One host of a cluster with its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostEntry {
    /// Its names, the display name first: `host-0`, `head`, `worker-0`.
    pub names: Vec<String>,
    /// How to reach it.
    pub target: SshTarget,
}

impl HostEntry {
    /// The entries of these hosts and, first, of the machine that relays to them run on.
    pub fn with_login(hosts: impl IntoIterator<Item = Self>) -> Vec<Self> {
        let hosts: Vec<Self> = hosts.into_iter().collect();
        let relay = |host: &Self| host.target.relay.as_ref()?.login.clone();
        let login = hosts.iter().find_map(relay);
        let login = login.map(|login| Self { names: vec![Relay::LOGIN.to_owned()], target: *login });
        login.into_iter().chain(hosts).collect()
    }

    /// Whether relays run on it, so that many connections share one login.
    pub(super) fn is_login(&self) -> bool {
        self.names.iter().any(|name| name == Relay::LOGIN)
    }
}

/// The output of `ssh -G` for a destination: with the user's configuration, and without any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Resolved {
    pub(super) with: Vec<(String, String)>,
    pub(super) without: Vec<(String, String)>,
}

impl Resolved {
    /// Parses the output of `ssh -G` with the user's configuration, and without.
    pub(super) fn of_texts(with: &str, without: &str) -> Self {
        let read = |text: &str| {
            let lines = text.lines().filter_map(|line| line.split_once(' '));
            lines.map(|(key, value)| (key.to_lowercase(), value.trim().to_owned())).collect()
        };
        Self { with: read(with), without: read(without) }
    }

    /// The first value of a key.
    pub(super) fn value(&self, key: &str) -> Option<&str> {
        self.with.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// The values of a key that the user's configuration sets.
    fn set<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        let is_default = move |value: &str| self.without.iter().any(|(name, other)| name == key && other == value);
        self.with.iter().filter(move |(name, value)| name == key && !is_default(value)).map(|(_, value)| value.as_str())
    }
}

/// What a host's key is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trust {
    /// The key given by the spec.
    Given,
    /// The key that the host was made with, or its own in place of that: nobody can give another.
    Made,
    /// The user's own known_hosts file.
    Users,
    /// The key seen at the first connection, recorded in our known_hosts file.
    FirstUse,
}

/// One Host block.
#[derive(Debug, Clone)]
pub(super) struct Block {
    pub(super) entry: HostEntry,
    pub(super) resolved: Resolved,
    pub(super) trust: Trust,
    /// The socket of a connection that the user keeps open to it, to be used and never closed.
    pub(super) users_master: Option<PathBuf>,
}

/// What to do about a machine whose key, made with it, is not known to be another for a good reason.
pub(super) const ANOTHER_MACHINE: &str =
    "no key but its own is accepted; for another machine in its place: gpucl down, then gpucl up";

impl Block {
    /// Where the spec gives the host's key.
    pub(super) fn where_key_is_given(&self) -> &'static str {
        if self.entry.is_login() {
            "to accept the new key, write it into `host_key:` below `provider:`"
        } else {
            "to accept the new key, write it into `host_key:` in that entry of `hosts:`"
        }
    }

    /// The display name, such as `host-0`.
    pub(super) fn name(&self) -> &str {
        self.entry.names.first().map_or("", String::as_str)
    }

    /// The login user.
    pub(super) fn user(&self) -> &str {
        self.entry.target.user.as_deref().or_else(|| self.resolved.value("user")).unwrap_or_default()
    }

    /// The name or address that `ssh` connects to.
    pub(super) fn address(&self) -> &str {
        self.resolved.value("hostname").unwrap_or(&self.entry.target.node)
    }

    /// The port that `ssh` connects to.
    pub(super) fn port(&self) -> u16 {
        self.entry.target.port.or_else(|| self.resolved.value("port")?.parse().ok()).unwrap_or(22)
    }

    /// The name of its key in our known_hosts file: that of the machine, not of its place in the spec.
    pub(super) fn alias(&self) -> String {
        alias(self.address(), self.port())
    }
}

/// The name of a machine's key in our known_hosts file.
pub(super) fn alias(address: &str, port: u16) -> String {
    format!("gpucl:{}:{port}", address.to_lowercase())
}

/// A value of the user's own configuration as one word, otherwise unchanged.
fn word(text: &str) -> String {
    if text.contains([' ', '\t', '"', '\'', '#']) {
        format!("\"{}\"", text.replace('"', "\\\""))
    } else {
        text.to_owned()
    }
}

/// Whether `ssh` expands tokens in a value: `%h`, `%d`, …
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tokens {
    Read,
    NotRead,
}

/// Writes one line whose value comes from a spec, a cloud or gpucl, so that `ssh` reads exactly this value and nothing
/// more.
///
/// All such values pass through here. [`SshTarget::faults`] has checked them before, where the error can point into the
/// spec; this catches values that came another way.
fn literal(key: &str, value: &str, tokens: Tokens) -> Result<String> {
    let refuse = |why: &str| {
        Err(Error::new(ErrorKind::Host, format!("write `{key}` of the SSH configuration"))
            .because(format!("`{}` {why}", value.escape_debug()))
            .hint("correct it in the spec; nothing was written"))
    };
    if value.is_empty() {
        return refuse("is empty");
    }
    if value.chars().any(char::is_control) {
        return refuse("holds a control character, such as a line break");
    }
    if value.contains("${") {
        return refuse("holds `${`, which `ssh` would take for an environment variable");
    }
    let value = if tokens == Tokens::Read { value.replace('%', "%%") } else { value.to_owned() };
    let is_plain = |letter: char| letter.is_alphanumeric() || "._-/:%@+~".contains(letter);
    Ok(match value.chars().all(is_plain) {
        true => format!("{key} {value}"),
        false => format!("{key} \"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"")),
    })
}

/// The line that names our known_hosts file.
pub(super) fn known_hosts_option(file: &Path) -> Result<String> {
    literal("UserKnownHostsFile", text_of("UserKnownHostsFile", file)?, Tokens::Read)
}

/// A path as text; a path that is not UTF-8 cannot be written into the file.
fn text_of<'a>(key: &str, path: &'a Path) -> Result<&'a str> {
    path.to_str().ok_or_else(|| {
        Error::new(ErrorKind::Host, format!("write `{key}` of the SSH configuration"))
            .because(format!("the path {} is not UTF-8", path.display()))
    })
}

/// The files that a configuration names.
#[derive(Debug, Clone, Copy)]
pub(super) struct Files<'a> {
    /// The configuration itself.
    pub(super) config: &'a Path,
    /// Our known_hosts file.
    pub(super) known_hosts: &'a Path,
    /// The folder for sockets.
    pub(super) runtime: &'a Path,
}

/// The text of `ssh_config`, for `ssh -F` by hand as well as for gpucl.
pub(super) fn config_text(blocks: &[Block], files: Files<'_>) -> Result<String> {
    let mut text = String::from(
        "# Written by gpucl, and overwritten when the cluster changes: `ssh -F THIS-FILE head` reaches a host.\n",
    );
    for block in blocks {
        let _ = write!(text, "\n{}", block_text(block, files)?);
    }
    // `-F` skips both files, and an Include without the Match would belong to the last block.
    text.push_str("\nMatch all\nInclude ~/.ssh/config\nInclude /etc/ssh/ssh_config\n");
    Ok(text)
}

/// How long the connection to a login machine stays open after its last use, in seconds.
const LOGIN_STAYS: u32 = 30;

/// The lines that say whether connections are shared.
///
/// `ssh` does not look at whose a socket is. One in the runtime folder is used only where that folder is this user's at
/// that moment, since in `/tmp` anybody may have made it.
fn sharing(block: &Block, files: Files<'_>) -> Result<Vec<String>> {
    let apart = ["ControlMaster no".to_owned(), "ControlPath none".to_owned()];
    let path = |path: &Path, tokens| literal("ControlPath", text_of("ControlPath", path)?, tokens);
    match &block.users_master {
        Some(socket) => Ok(vec!["ControlMaster no".to_owned(), path(socket, Tokens::Read)?]),
        None if block.entry.is_login() => {
            let folder = path(files.runtime, Tokens::Read)?;
            let socket = match folder.strip_suffix('"') {
                Some(quoted) => format!("{quoted}/login-%C\""),
                None => format!("{folder}/login-%C"),
            };
            let names = &block.entry.names;
            let mut lines = Vec::new();
            if let Some(check) = check_for_ssh(files.runtime) {
                lines.extend([format!("Match originalhost {} exec \"{check}\"", names.join(","))]);
                lines.extend(["ControlMaster auto".to_owned(), socket, format!("ControlPersist {LOGIN_STAYS}")]);
                lines.push(format!("Host {}", names.join(" ")));
            }
            lines.extend(apart);
            Ok(lines)
        }
        None => Ok(apart.into()),
    }
}

/// The command whose input and output are the connection to a host.
fn proxy_command(relay: &Relay, files: Files<'_>) -> Result<String> {
    let command = relay.command.join(" ");
    // It is read by a shell of this machine, and by one of the login machine.
    let whole = match &relay.login {
        Some(_) => {
            let config = quote(text_of("ProxyCommand", files.config)?);
            // Nobody is there to answer a question.
            format!("ssh -F {config} -o BatchMode=yes {} {}", Relay::LOGIN, quote(&command))
        }
        None => command,
    };
    if whole.chars().any(char::is_control) {
        return Err(Error::new(ErrorKind::Host, "write `ProxyCommand` of the SSH configuration")
            .because("a path holds a control character"));
    }
    Ok(format!("ProxyCommand {}", whole.replace('%', "%%")))
}

/// A value of the user's configuration with the name that the user gives the host for `%n`: in ours it is another.
fn with_name(value: &str, target: &SshTarget) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || ".-_:".contains(letter);
    if !target.node.chars().all(is_plain) {
        return value.to_owned();
    }
    // `%%` is a per cent sign.
    value.split("%%").map(|part| part.replace("%n", &target.node)).collect::<Vec<_>>().join("%%")
}

fn block_text(block: &Block, files: Files<'_>) -> Result<String> {
    let Block { entry: HostEntry { names, target }, resolved, trust, .. } = block;
    // `ssh -G` has already expanded the tokens in the address.
    let mut lines = vec![literal("HostName", block.address(), Tokens::Read)?, format!("Port {}", block.port())];
    match &target.user {
        Some(user) => lines.push(literal("User", user, Tokens::NotRead)?),
        None => lines.extend(resolved.set("user").map(|user| format!("User {}", word(user)))),
    }
    match &target.identity_file {
        Some(file) => {
            lines.push(literal("IdentityFile", text_of("IdentityFile", file)?, Tokens::Read)?);
            lines.push("IdentitiesOnly yes".to_owned());
        }
        None => lines.extend(
            resolved.set("identityfile").map(|file| format!("IdentityFile {}", word(&with_name(file, target)))),
        ),
    }
    if let Some(jump) = &target.jump {
        lines.push(literal("ProxyJump", jump, Tokens::Read)?);
    }
    if let Some(relay) = &target.relay {
        lines.push(proxy_command(relay, files)?);
    }
    let is_ours = |key: &&&str| match **key {
        "identitiesonly" => target.identity_file.is_some(),
        "proxyjump" | "proxycommand" => target.jump.is_some() || target.relay.is_some(),
        _ => false,
    };
    for key in CARRIED.iter().filter(|key| !is_ours(key)) {
        let value = |value: &str| if WORDS.contains(key) { word(value) } else { value.to_owned() };
        lines.extend(resolved.set(key).map(|found| format!("{key} {}", value(&with_name(found, target)))));
    }
    match trust {
        Trust::Users => {
            lines.extend(resolved.set("hostkeyalias").map(|alias| format!("HostKeyAlias {alias}")));
            let files = resolved.set("userknownhostsfile").map(|files| with_name(files, target));
            lines.extend(files.map(|files| format!("UserKnownHostsFile {files}")));
            lines.push("StrictHostKeyChecking yes".to_owned());
        }
        Trust::Given | Trust::Made | Trust::FirstUse => {
            lines.push(literal("HostKeyAlias", &block.alias(), Tokens::NotRead)?);
            lines.push(known_hosts_option(files.known_hosts)?);
            lines.push("GlobalKnownHostsFile none".to_owned());
            let strict = if *trust == Trust::FirstUse { "accept-new" } else { "yes" };
            lines.push(format!("StrictHostKeyChecking {strict}"));
            lines.push("HashKnownHosts no".to_owned());
            lines.push("UpdateHostKeys no".to_owned());
        }
    }
    lines.extend(
        [
            "ConnectTimeout 10",
            "ServerAliveInterval 15",
            "ServerAliveCountMax 4",
            "RemoteCommand none",
            "RequestTTY auto",
            "PermitLocalCommand no",
            // The host may be a stranger's choice: it gets a login, and none to other machines.
            "ForwardAgent no",
            "ForwardX11 no",
        ]
        .map(str::to_owned),
    );
    // An `ssh` that was built without it would complain.
    if block.resolved.value("gssapidelegatecredentials").is_some() {
        lines.push("GSSAPIDelegateCredentials no".to_owned());
    }
    lines.extend(sharing(block, files)?);
    let mut text = format!("Host {}\n", names.join(" "));
    for line in lines {
        let indent = if line.starts_with("Host ") || line.starts_with("Match ") { "" } else { "    " };
        let _ = writeln!(text, "{indent}{line}");
    }
    Ok(text)
}

/// The text of the file for gpucl's own connections: the same, plus settings that do not suit a person at a terminal.
///
/// It applies to jump hosts as well: they must not prompt at the terminal, nor hide their errors.
pub(super) fn own_text(config: &Path) -> Result<String> {
    let include = literal("Include", text_of("Include", config)?, Tokens::NotRead)?;
    Ok(format!(
        "# For gpucl's own connections; `ssh_config` beside it is for people.\n\
         Match all\n    BatchMode yes\n    LogLevel INFO\n    ClearAllForwardings yes\n    VisualHostKey no\n{include}\n",
    ))
}

/// The text of `known_hosts`: the given keys or those in their place, and the keys recorded at first connections to
/// machines still in use.
pub(super) fn known_hosts_text(before: &str, blocks: &[Block], keys: &HostKeys) -> String {
    let mut text = String::new();
    let mut written = BTreeSet::new();
    for block in blocks {
        let alias = block.alias();
        if !written.insert(alias.clone()) {
            continue;
        }
        match (&block.entry.target.host_key, block.trust) {
            (Some(given), _) => keys.accepted(given).iter().for_each(|key| {
                let _ = writeln!(text, "{alias} {key}");
            }),
            (None, Trust::FirstUse) => lines_of(before, &alias).for_each(|line| {
                let _ = writeln!(text, "{line}");
            }),
            (None, _) => {}
        }
    }
    text
}

/// The known_hosts lines of this alias.
pub(super) fn lines_of<'a>(known_hosts: &'a str, alias: &'a str) -> impl Iterator<Item = &'a str> {
    known_hosts.lines().filter(move |line| line.split_whitespace().next() == Some(alias))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITHOUT: &str = "host gpu\nuser ada\nhostname gpu\nport 22\nidentitiesonly no\nidentityfile ~/.ssh/id_rsa\n\
                           identityfile ~/.ssh/id_ed25519\nuserknownhostsfile /h/.ssh/known_hosts\nrequesttty auto\n";

    fn files(known_hosts: &Path) -> Files<'_> {
        Files { config: Path::new("/state/my clusters/demo/ssh_config"), known_hosts, runtime: Path::new("/run/50%") }
    }

    fn block(target: SshTarget, with: &str, trust: Trust) -> Block {
        let entry = HostEntry { names: vec!["host-0".to_owned(), "head".to_owned()], target };
        Block { entry, resolved: Resolved::of_texts(with, WITHOUT), trust, users_master: None }
    }

    fn target(node: &str) -> SshTarget {
        SshTarget { node: node.to_owned(), ..SshTarget::default() }
    }

    fn text(block: Block) -> String {
        config_text(&[block], files(Path::new("/state/my clusters/demo/known_hosts"))).unwrap()
    }

    #[test]
    fn a_plain_host_gets_a_block_and_both_other_files_are_included_for_all() {
        let text = text(block(target("gpu"), WITHOUT, Trust::FirstUse));
        assert!(
            text.contains("\nHost host-0 head\n    HostName gpu\n    Port 22\n    HostKeyAlias gpucl:gpu:22\n"),
            "{text}"
        );
        assert!(text.contains("    UserKnownHostsFile \"/state/my clusters/demo/known_hosts\"\n"), "{text}");
        assert!(text.contains("    StrictHostKeyChecking accept-new\n"), "{text}");
        assert!(text.ends_with("\nMatch all\nInclude ~/.ssh/config\nInclude /etc/ssh/ssh_config\n"), "{text}");
        for left_out in ["IdentityFile", "IdentitiesOnly", "    User ", "BatchMode"] {
            assert!(!text.contains(left_out), "{text}");
        }
    }

    #[test]
    fn the_name_that_the_user_gives_a_host_stays_in_values_that_have_it() {
        let with = WITHOUT.replace("identityfile ~/.ssh/id_rsa\n", "identityfile /keys/id-%n\n");
        let with = format!("{with}proxycommand connect %n 50%%n %h\n");
        let text = text(block(target("gpu"), &with, Trust::FirstUse));
        assert!(text.contains("    IdentityFile /keys/id-gpu\n"), "{text}");
        assert!(text.contains("    proxycommand connect gpu 50%%n %h\n"), "{text}");
        // What a shell would read is left as it is.
        assert_eq!(with_name("x %n", &target("$(id)")), "x %n");
    }

    #[test]
    fn what_the_users_file_says_of_an_alias_stands_in_our_block() {
        let with = "host box\nuser cc\nhostname 10.0.0.7\nport 2222\nidentitiesonly yes\nidentityfile ~/my keys/id\n\
                    identityfile ~/.ssh/id_rsa\nproxyjump bastion\nproxycommand none\ncontrolpath /tmp/x\nremotecommand top\n\
                    requesttty force\nforwardagent yes\nforwardx11 yes\ngssapidelegatecredentials yes\nlocalforward 8080 [localhost]:80\nuserknownhostsfile /h/.ssh/known_hosts\n";
        let text = text(block(target("box"), with, Trust::FirstUse));
        for line in [
            "HostName 10.0.0.7",
            "Port 2222",
            "User cc",
            "IdentityFile \"~/my keys/id\"",
            "identitiesonly yes",
            "proxyjump bastion",
            "ControlPath none",
            "RemoteCommand none",
            "RequestTTY auto",
            "ForwardAgent no",
            "ForwardX11 no",
            "GSSAPIDelegateCredentials no",
        ] {
            assert!(text.contains(&format!("\n    {line}\n")), "{line}: {text}");
        }
        for left_out in ["/tmp/x", "top", "force", "localforward", "id_rsa", "forwardagent yes", "credentials yes"] {
            assert!(!text.contains(left_out), "{left_out}: {text}");
        }
    }

    #[test]
    fn what_the_spec_says_wins_and_its_key_is_the_only_one() {
        let with = "user cc\nhostname gpu\nport 2222\nidentityfile ~/other\n";
        let wanted = SshTarget {
            user: Some("root".to_owned()),
            port: Some(23),
            identity_file: Some("/home/ada/lab/id".into()),
            ..target("gpu")
        };
        let block = block(wanted, with, Trust::FirstUse);
        assert_eq!((block.user(), block.port()), ("root", 23));
        let text = text(block);
        assert!(
            text.contains("    Port 23\n    User root\n    IdentityFile /home/ada/lab/id\n    IdentitiesOnly yes\n"),
            "{text}"
        );
        assert!(!text.contains("other"), "{text}");
    }

    #[test]
    fn a_key_that_the_user_knows_is_looked_up_under_its_own_name() {
        let with = "hostname gpu\nuserknownhostsfile /h/known\nhostkeyalias lab-box\n";
        let text = text(block(target("gpu"), with, Trust::Users));
        assert!(
            text.contains("    HostKeyAlias lab-box\n    UserKnownHostsFile /h/known\n    StrictHostKeyChecking yes\n"),
            "{text}"
        );
        assert!(!text.contains("gpucl:"), "{text}");
    }

    #[test]
    fn known_hosts_keep_recorded_keys_and_take_given_ones() {
        let before = "gpucl:gpu:22 ssh-ed25519 AAAArecorded\ngpucl:old:22 ssh-ed25519 AAAAold\n";
        let recorded = block(target("gpu"), WITHOUT, Trust::FirstUse);
        assert_eq!(
            known_hosts_text(before, &[recorded], &HostKeys::default()),
            "gpucl:gpu:22 ssh-ed25519 AAAArecorded\n"
        );
        let given = SshTarget { host_key: Some("ssh-ed25519 AAAAgiven\n".to_owned()), ..target("gpu") };
        let given = block(given, WITHOUT, Trust::Given);
        assert!(block_text(&given, files(Path::new("/k"))).unwrap().contains("StrictHostKeyChecking yes"));
        assert_eq!(known_hosts_text(before, &[given], &HostKeys::default()), "gpucl:gpu:22 ssh-ed25519 AAAAgiven\n");
    }

    #[test]
    fn no_value_of_a_spec_or_a_cloud_begins_another_line() {
        let attack = || "x\nProxyCommand=touch /tmp/marker".to_owned();
        let attacks = [
            SshTarget { user: Some(attack()), ..target("gpu") },
            SshTarget { identity_file: Some(attack().into()), ..target("gpu") },
            SshTarget { jump: Some(attack()), ..target("gpu") },
            target(&attack()),
            SshTarget { identity_file: Some("/keys/${HOME}".into()), ..target("gpu") },
            SshTarget { user: Some(String::new()), ..target("gpu") },
        ];
        for target in attacks {
            let error = config_text(&[block(target, "", Trust::FirstUse)], files(Path::new("/k"))).unwrap_err();
            assert!(error.doing().contains("of the SSH configuration"), "{error}");
            assert!(!error.to_string().contains("\nProxyCommand"), "{error}");
        }
    }

    #[test]
    fn a_value_is_read_as_it_was_meant() {
        let wanted = SshTarget { identity_file: Some("/my keys/50%/\"a\\b\"".into()), ..target("fe80::1%eth0") };
        let text = text(block(wanted, "", Trust::FirstUse));
        for line in
            ["HostName fe80::1%%eth0", r#"IdentityFile "/my keys/50%%/\"a\\b\"""#, "HostKeyAlias gpucl:fe80::1%eth0:22"]
        {
            assert!(text.contains(&format!("\n    {line}\n")), "{line}: {text}");
        }
    }

    fn behind(login: Option<SshTarget>) -> SshTarget {
        let words = ["srun", "--jobid=7", "-w", "n1", "python3", "~/.gpucl/slurm/t/node.py"];
        let command = words.map(str::to_owned).to_vec();
        SshTarget { relay: Some(Box::new(Relay { login: login.map(Box::new), command })), ..target("n1") }
    }

    /// Whoever makes the folder in `/tmp` first would get the login's commands.
    #[test]
    fn a_login_is_shared_only_by_a_socket_in_a_folder_of_this_user() {
        use std::os::unix::fs::PermissionsExt as _;

        let above = tempfile::tempdir().unwrap();
        let (config, runtime) = (above.path().join("ssh_config"), above.path().join("my run"));
        let entries = HostEntry::with_login([block(behind(Some(target("site"))), "", Trust::Given).entry]);
        let blocks = entries.into_iter().map(|entry| Block { entry, ..block(target("x"), "", Trust::Given) });
        let files = Files { config: &config, known_hosts: &config, runtime: &runtime };
        fs_err::write(&config, config_text(&blocks.collect::<Vec<_>>(), files).unwrap()).unwrap();
        let socket = |name: &str| {
            let read = std::process::Command::new("ssh").arg("-F").arg(&config).args(["-G", name]).output().unwrap();
            let said = String::from_utf8(read.stdout).unwrap();
            said.lines().find_map(|line| line.strip_prefix("controlpath ")).unwrap_or("none").to_owned()
        };
        assert!(socket("login").starts_with(&runtime.join("login-").display().to_string()), "{}", socket("login"));
        assert_eq!(socket("host-0"), "none");
        fs_err::set_permissions(&runtime, std::fs::Permissions::from_mode(0o750)).unwrap();
        assert_eq!(socket("login"), "none");
        fs_err::remove_dir(&runtime).unwrap();
        fs_err::os::unix::fs::symlink(above.path(), &runtime).unwrap();
        assert_eq!(socket("login"), "none");
    }

    #[test]
    fn a_host_behind_a_relay_is_reached_through_one_shared_login() {
        let text = text(block(behind(Some(target("site"))), "proxyjump bastion\n", Trust::Given));
        let proxy = "    ProxyCommand ssh -F '/state/my clusters/demo/ssh_config' -o BatchMode=yes login 'srun --jobid=7 -w n1 \
                     python3 ~/.gpucl/slurm/t/node.py'\n";
        assert!(text.contains(proxy), "{text}");
        assert!(!text.contains("bastion"), "the way to a node is not the user's way to a machine of that name: {text}");
        let local = config_text(&[block(behind(None), "", Trust::Given)], files(Path::new("/k"))).unwrap();
        assert!(local.contains("    ProxyCommand srun --jobid=7 -w n1 "), "{local}");
        let entries =
            HostEntry::with_login([HostEntry { names: vec!["host-0".into()], target: behind(Some(target("site"))) }]);
        assert_eq!(entries[0].names, ["login"]);
        let login =
            Block { entry: entries[0].clone(), resolved: Resolved::default(), trust: Trust::Users, users_master: None };
        let text = config_text(std::slice::from_ref(&login), files(Path::new("/k"))).unwrap();
        assert!(
            text.contains("    ControlMaster auto\n    ControlPath /run/50%%/login-%C\n    ControlPersist 30\n"),
            "{text}"
        );
        let own = Block { users_master: Some("/home/ada/.ssh/cm".into()), ..login };
        let text = config_text(&[own], files(Path::new("/k"))).unwrap();
        assert!(text.contains("    ControlMaster no\n    ControlPath /home/ada/.ssh/cm\n"), "{text}");
    }
}
