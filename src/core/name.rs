//! The names that identify what belongs to gpucl: cluster, owner, key, and the tag built from them.
//!
//! Tags are parsed as a whole (owner by its length, key after the last hyphen) and never compared by
//! prefix: the cluster `a` is not the cluster `a-b`.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The reserved name used as the cluster in the tags of standalone leases.
pub const LEASES: &str = "lease";
/// The length of an owner, in characters.
const OWNER_LENGTH: usize = 8;
/// The prefix of every tag.
const TAG_PREFIX: &str = "gpucl-";
/// The reserved name used as the cluster in the tags of standalone leases.
const LEASE: &str = "lease";

/// Why a text is not a valid name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NameError(pub String);

/// A cluster's name: `[a-z][a-z0-9-]{0,19}`, unique per owner.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("pattern" = "^[a-z][a-z0-9-]{0,19}$"))]
pub struct ClusterName(String);

impl ClusterName {
    /// The reserved name used as the cluster in the tags of standalone leases. No cluster may have it.
    pub fn lease() -> Self {
        Self(LEASE.to_owned())
    }

    /// Whether the name is reserved, so that no cluster may have it.
    pub fn is_reserved(&self) -> bool {
        self.0 == LEASE
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ClusterName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let mut letters = text.chars();
        let starts_well = letters.next().is_some_and(|first| first.is_ascii_lowercase());
        let goes_on_well =
            letters.all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-');
        if starts_well && goes_on_well && text.len() <= 20 {
            Ok(Self(text.to_owned()))
        } else {
            Err(NameError(format!(
                "`{text}` is not a cluster name: use 1 to 20 of a-z, 0-9 and -, beginning with a letter"
            )))
        }
    }
}

/// Eight random characters of `[a-z0-9]`, generated once per user; they distinguish users who share an account.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Owner(String);

impl Owner {
    /// The owner as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Owner {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.len() == OWNER_LENGTH && text.chars().all(is_key_letter) {
            Ok(Self(text.to_owned()))
        } else {
            Err(NameError(format!("`{text}` is not an owner: use {OWNER_LENGTH} of a-z and 0-9")))
        }
    }
}

/// The name of one part of a cluster, unique within it: `[a-z0-9]+`, such as `host0`, `head` or `worker1`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Key(String);

impl Key {
    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The key of the n-th host.
    pub fn host(index: usize) -> Self {
        Self(format!("host{index}"))
    }

    /// Whether it is the key of a host.
    pub fn is_host(&self) -> bool {
        let number = self.0.strip_prefix("host").unwrap_or_default();
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    }

    /// The key of the head node.
    pub fn head() -> Self {
        Self("head".to_owned())
    }

    /// The key of the n-th worker node.
    pub fn worker(index: usize) -> Self {
        Self(format!("worker{index}"))
    }

    /// Whether it is the key of a node.
    pub fn is_node(&self) -> bool {
        let number = self.0.strip_prefix("worker").unwrap_or_default();
        self.0 == "head" || (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    }

    /// The key of the project of the n-th host.
    pub fn project(index: usize) -> Self {
        Self(format!("project{index}"))
    }

    /// The key of the n-th thing of another kind, such as `nodeexporter1`; `kind` is a-z only.
    pub fn numbered(kind: &str, index: usize) -> Self {
        Self(format!("{kind}{index}"))
    }

    /// The key of a standalone lease; `letters` is a-z and 0-9 only.
    pub fn lease(letters: &str) -> Self {
        Self(format!("l{letters}"))
    }

    /// The key of the object store.
    pub fn object_store() -> Self {
        Self::service("objectstore")
    }

    /// The key of MLflow.
    pub fn mlflow() -> Self {
        Self::service("mlflow")
    }

    /// The key of the guard of the head's host; those of other hosts are numbered.
    pub fn guard() -> Self {
        Self::service("guard")
    }

    /// Whether it is the key of a guard.
    pub fn is_guard(&self) -> bool {
        self.0.strip_prefix("guard").is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
    }

    /// The key of a service, such as `grafana`; `kind` is a-z only.
    pub fn service(kind: &str) -> Self {
        Self(kind.to_owned())
    }

    /// The key of the cluster's agent.
    pub fn agent() -> Self {
        Self("agent".to_owned())
    }

    /// The key as shown to users: `worker-0` for `worker0`.
    pub fn display_name(&self) -> String {
        match self.0.find(|letter: char| letter.is_ascii_digit()) {
            Some(at) if at > 0 => format!("{}-{}", &self.0[..at], &self.0[at..]),
            _ => self.0.clone(),
        }
    }
}

impl FromStr for Key {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if !text.is_empty() && text.chars().all(is_key_letter) {
            Ok(Self(text.to_owned()))
        } else {
            Err(NameError(format!("`{text}` is not a key: use a-z and 0-9 only")))
        }
    }
}

fn is_key_letter(letter: char) -> bool {
    letter.is_ascii_lowercase() || letter.is_ascii_digit()
}

/// The tag that every resource has from its creation on: `gpucl-<owner>-<cluster>-<key>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Tag {
    /// The owner of the resource.
    pub owner: Owner,
    /// The cluster it belongs to.
    pub cluster: ClusterName,
    /// Its key within that cluster.
    pub key: Key,
}

impl fmt::Display for Tag {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{TAG_PREFIX}{}-{}-{}", self.owner.0, self.cluster.0, self.key.0)
    }
}

impl TryFrom<String> for Tag {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<Tag> for String {
    fn from(tag: Tag) -> Self {
        tag.to_string()
    }
}

impl FromStr for Tag {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let wrong = || NameError(format!("`{text}` is not a gpucl tag"));
        let rest = text.strip_prefix(TAG_PREFIX).ok_or_else(wrong)?;
        let owner = rest.get(..OWNER_LENGTH).ok_or_else(wrong)?.parse()?;
        let rest = rest[OWNER_LENGTH..].strip_prefix('-').ok_or_else(wrong)?;
        let (cluster, key) = rest.rsplit_once('-').ok_or_else(wrong)?;
        Ok(Self { owner, cluster: cluster.parse()?, key: key.parse()? })
    }
}

/// One cluster of one owner: the argument of `observe`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope {
    /// The owner.
    pub owner: Owner,
    /// The owner's cluster.
    pub cluster: ClusterName,
}

impl Scope {
    /// The tag for a key in this scope.
    pub fn tag(&self, key: &Key) -> Tag {
        Tag { owner: self.owner.clone(), cluster: self.cluster.clone(), key: key.clone() }
    }

    /// Whether a tag belongs to this scope.
    pub fn holds(&self, tag: &Tag) -> bool {
        tag.owner == self.owner && tag.cluster == self.cluster
    }
}

macro_rules! text_name {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str(&self.0)
            }
        }
        impl TryFrom<String> for $name {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                text.parse()
            }
        }
        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }
    )*};
}
text_name!(ClusterName, Owner, Key);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_parsed_whole() {
        let text = "gpucl-abcd1234-a-b-worker0";
        let tag: Tag = text.parse().unwrap();
        assert_eq!(tag.cluster.as_str(), "a-b");
        assert_eq!(tag.key.as_str(), "worker0");
        assert_eq!(tag.to_string(), text);
        let a = Scope { owner: tag.owner.clone(), cluster: "a".parse().unwrap() };
        assert!(!a.holds(&tag), "the cluster `a` does not include what belongs to `a-b`");
    }

    #[test]
    fn foreign_texts_are_not_tags() {
        for text in ["gpucl-abcd123-a-k", "gpucl-ABCD1234-a-k", "other-abcd1234-a-k", "gpucl-abcd1234-a", "gpucl-"] {
            assert!(text.parse::<Tag>().is_err(), "{text}");
        }
    }

    #[test]
    fn keys_are_shown_with_a_hyphen() {
        assert_eq!(Key::worker(12).display_name(), "worker-12");
        assert_eq!(Key::head().display_name(), "head");
    }
}
