//! What remains of a cluster on a host.

use std::fmt;

use crate::util::human;

/// A thing on a host that carries a cluster's tag. Its text is what users read, and what hosts print.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remnant {
    /// A container, by its name.
    Container(String),
    /// A process of a node, by the node's tag.
    Process(String),
    /// Processes with the tag, those of no known node included.
    Processes(usize),
    /// A data volume, by its name.
    Volume(String),
    /// A network of containers, by its name.
    Network(String),
    /// An image, by its name and tag.
    Image(String),
    /// A table of firewall rules, by its family and name.
    FirewallTable(String),
    /// The data folder, where nothing else is left in the host's folder.
    DataFolder(String),
    /// A folder, by its path.
    Folder(String),
    /// Whatever was put on a host that cannot be reached.
    OfUnreachableHost,
    /// Anything else, in the host's words.
    Other(String),
}

/// A kind of remnant that has a name, made from it.
pub type NamedRemnant = fn(String) -> Remnant;

/// The named kinds: the words before the name, and the kind.
const NAMED: &[(&str, NamedRemnant)] = &[
    ("container", Remnant::Container),
    ("process", Remnant::Process),
    ("volume", Remnant::Volume),
    ("network", Remnant::Network),
    ("image", Remnant::Image),
    ("nftables table", Remnant::FirewallTable),
    ("data folder", Remnant::DataFolder),
    ("folder", Remnant::Folder),
];

impl Remnant {
    /// Parses the words of a host: `volume gpucl-…`, `folder /var/lib/gpucl/…`, `nftables table inet gpucl_…`.
    pub fn parse(words: &str) -> Self {
        let named =
            NAMED.iter().find_map(|(kind, of)| Some(of(words.strip_prefix(kind)?.strip_prefix(' ')?.to_owned())));
        named.unwrap_or_else(|| Self::Other(words.to_owned()))
    }

    /// Whether `down --keep-data` keeps it.
    pub fn is_data(&self) -> bool {
        matches!(self, Self::Volume(_) | Self::DataFolder(_))
    }
}

impl fmt::Display for Remnant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name) = match self {
            Self::Container(name) => ("container", name),
            Self::Process(name) => ("process", name),
            Self::Volume(name) => ("volume", name),
            Self::Network(name) => ("network", name),
            Self::Image(name) => ("image", name),
            Self::FirewallTable(name) => ("nftables table", name),
            Self::DataFolder(path) => ("data folder", path),
            Self::Folder(path) => ("folder", path),
            Self::Processes(number) => return formatter.write_str(&human::count(*number, "process")),
            Self::OfUnreachableHost => {
                return formatter.write_str("everything that was put there (it cannot be reached)");
            }
            Self::Other(words) => return formatter.write_str(words),
        };
        write!(formatter, "{kind} {name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_host_come_back_as_they_were() {
        let data = ["volume c-host0_objects", "data folder /var/lib/gpucl/c/data"];
        let others = [
            "container c-head",
            "process c-head",
            "network c-host0_default",
            "image gpucl/ray:1",
            "nftables table inet gpucl_c",
            "folder /var/lib/gpucl/c",
        ];
        for words in data.into_iter().chain(others) {
            let remnant = Remnant::parse(words);
            assert_eq!(remnant.to_string(), words);
            assert!(!matches!(remnant, Remnant::Other(_)), "{words}");
            assert_eq!(remnant.is_data(), data.contains(&words), "{words}");
        }
        for words in ["volume", "volumes x", "a data folder /x", ""] {
            assert_eq!(Remnant::parse(words), Remnant::Other(words.to_owned()));
        }
        assert_eq!(Remnant::Processes(2).to_string(), "2 processes");
    }
}
