//! A host key that the host makes, in place of the one that its user data gave it.
//!
//! The given key makes the first connection certain, but user data stays readable: to programs on the host, and through
//! the provider's API. So it serves for that connection alone.
//!
//! The new key is known here before the host uses it, and the given one is forgotten only when a connection was made that
//! accepts nothing but the new one. Whoever goes on after a crash at any point gets in.

use super::connect::Connections;
use super::host::SshHost;
use super::host_keys::{HostKeys, Replaced, plain};
use super::target::host_key_fault;
use crate::error::Result;
use crate::host::{Account, ExecEnd, Host as _};
use crate::render::quote;

const PROGRAM: &str = include_str!("own_key.sh");

/// What was done last on the way to a host's own key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The host has made the key.
    Made,
    /// Both keys are known here.
    Known,
    /// The host uses its own key.
    Taken,
    /// A connection was made that accepts no other.
    Proven,
}

impl Connections {
    /// Has a host use a key of its own instead of the one that was given to it, unless it does. Idempotent; can be dropped
    /// at any point.
    ///
    /// # Errors
    /// If the host cannot be changed. The connection to it stays as it is, and so does what is known of its key.
    pub async fn give_own_key(&self, host: &SshHost) -> Result<()> {
        self.give_own_key_by(host, &mut |_| Ok(())).await
    }

    async fn give_own_key_by(&self, host: &SshHost, after: &mut (dyn FnMut(Step) -> Result<()> + Send)) -> Result<()> {
        let route = &host.shared.route;
        let Some(given) = route.block.entry.target.host_key.as_deref().map(plain) else { return Ok(()) };
        let before = HostKeys::read(self.folder())?.of(&given).cloned();
        if before.as_ref().is_some_and(|key| key.is_in_use) {
            return Ok(());
        }
        let own = before.map(|key| key.own).unwrap_or_default();
        let own = plain(&ask(host, "make", &given, &own, "::own_key ").await?);
        if let Some(fault) = host_key_fault(&own) {
            return Err(host.failed("make a host key").because(format!("what it shows {fault}")));
        }
        after(Step::Made)?;
        let mut key = Replaced { given, own, is_in_use: false };
        self.note_key(key.clone())?;
        after(Step::Known)?;
        ask(host, "take", &key.given, &key.own, "::taken").await?;
        after(Step::Taken)?;
        route.prove(&key.own).await?;
        after(Step::Proven)?;
        key.is_in_use = true;
        self.note_key(key)
    }

    /// Records a key, and rewrites `known_hosts` accordingly.
    fn note_key(&self, key: Replaced) -> Result<()> {
        let _turn = self.files_turn();
        let mut keys = HostKeys::read(self.folder())?;
        keys.set(key);
        keys.write(self.folder())?;
        self.write_known_hosts()
    }
}

/// Runs a step of the program on the host, and returns the rest of the line that begins with `sign`.
async fn ask(host: &SshHost, step: &str, given: &str, own: &str, sign: &str) -> Result<String> {
    let program = format!("step={step}\ngiven={}\nown={}\n{PROGRAM}", quote(given), quote(own));
    let doing = "replace the host key from the user data";
    let run = async |host: &SshHost| {
        let (mut lines, mut said) = (Vec::new(), String::new());
        let mut on_line = |_, line: &str| {
            said = line.to_owned();
            lines.push(line.to_owned());
        };
        let end = host.exec(&program, &mut on_line).await?;
        if let Some(found) = lines.iter().find_map(|line| line.strip_prefix(sign)) {
            return Ok(found.to_owned());
        }
        let why = lines.iter().find_map(|line| line.strip_prefix("::failed "));
        Err(host.failed(doing).because(match (why, end) {
            (Some(why), _) => why.to_owned(),
            (None, ExecEnd::Broken) => "the connection to the host broke".to_owned(),
            (None, ExecEnd::Exited(_)) => said,
        }))
    };
    match run(&host.by(Account::Root)).await {
        Ok(found) => Ok(found),
        // A server that the login user runs needs no root.
        Err(error) => run(&host.as_user()).await.map_err(|_| error),
    }
}

#[cfg(test)]
mod tests;
