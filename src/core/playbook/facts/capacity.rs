//! What of a machine can be had: its processors and memory, and what limits them.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Facts;
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::render::quote;
use crate::util::child;

/// The program that reads processors, memory and their limits.
const PROGRAM: &str = include_str!("../shell/capacity.sh");

/// What a limit is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitOf {
    /// The logical processors.
    Cpus,
    /// The memory.
    Memory,
}

/// Whose limits count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunAs {
    /// Processes of a login, which have its cgroup and its affinity.
    Processes,
    /// Containers: the engine starts them, outside of the cgroup of any login. Only what limits the whole machine limits
    /// them, as where the engine runs in a container itself.
    Containers,
}

/// A limit that is less than what the machine has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// What it is of.
    pub of: LimitOf,
    /// The most that can be had: logical processors, or bytes.
    pub most: u64,
    /// Whether it is of everything on the machine, and not only of a login's processes.
    pub whole: bool,
    /// What sets it: `the cgroup /user.slice`.
    pub by: String,
}

/// What can be had of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capacity {
    /// Logical processors.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory: u64,
    /// What limits the processors, if anything does.
    pub cpus_limit: Option<Limit>,
    /// What limits the memory, if anything does.
    pub memory_limit: Option<Limit>,
}

impl Limit {
    /// Parses `memory KIB SCOPE BY` or `cpus NUMBER SCOPE BY`.
    pub(super) fn of(rest: &str) -> Option<Self> {
        let mut words = rest.trim().splitn(4, ' ');
        let (of, factor) = match words.next()? {
            "cpus" => (LimitOf::Cpus, 1),
            "memory" => (LimitOf::Memory, 1024),
            _ => return None,
        };
        let most = words.next()?.parse::<u64>().ok().filter(|most| *most > 0)?.saturating_mul(factor);
        let whole = words.next()? == "whole";
        let by = match words.next()?.split_once(' ') {
            Some((_, "/")) => "the container's cgroup".to_owned(),
            Some(("quota", path)) => format!("the CPU quota of the cgroup {path}"),
            Some((_, path)) => format!("the cgroup {path}"),
            None => "the CPU affinity".to_owned(),
        };
        Some(Self { of, most, whole, by })
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "limit of {}", self.by)
    }
}

impl Facts {
    /// What such nodes can have of the machine.
    pub fn capacity(&self, run_as: RunAs) -> Capacity {
        let least = |of: LimitOf| {
            let counts = |limit: &&Limit| limit.of == of && (limit.whole || run_as == RunAs::Processes);
            self.limits.iter().filter(counts).min_by_key(|limit| limit.most)
        };
        let cpus_limit = least(LimitOf::Cpus).filter(|limit| limit.most < u64::from(self.cpus));
        let memory_limit = least(LimitOf::Memory).filter(|limit| limit.most < self.memory);
        let cpus = cpus_limit.and_then(|limit| u32::try_from(limit.most).ok());
        Capacity {
            cpus: cpus.unwrap_or(self.cpus),
            memory: memory_limit.map_or(self.memory, |limit| limit.most),
            cpus_limit: cpus_limit.cloned(),
            memory_limit: memory_limit.cloned(),
        }
    }
}

/// What processes of this login can have of this machine, whose files are below `root`: `/`, except in tests.
///
/// # Errors
/// When the shell cannot be started, or the machine does not say how much memory it has.
pub fn capacity_here(root: &Path) -> Result<Capacity> {
    facts_below(root).map(|facts| facts.capacity(RunAs::Processes))
}

fn facts_below(root: &Path) -> Result<Facts> {
    let doing = || "read the processors and the memory of this machine".to_owned();
    let root = root.to_string_lossy();
    let root = root.trim_end_matches('/');
    let program = format!("fact() {{ printf '%s\\n' \"$*\"; }}\n{PROGRAM}facts_capacity {} self\n", quote(root));
    let output = child::command("sh").arg("-c").arg(program).output().doing(ErrorKind::Provider, doing)?;
    let mut facts = Facts::default();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let (key, rest) = line.split_once(' ').unwrap_or((line, ""));
        facts.take(key, rest);
    }
    if facts.memory == 0 {
        let error = Error::new(ErrorKind::Provider, doing());
        return Err(error.because(format!("{root}/proc/meminfo has no line `MemTotal: N kB`")));
    }
    Ok(facts)
}

#[cfg(test)]
mod tests;
