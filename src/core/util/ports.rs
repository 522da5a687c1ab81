//! TCP ports of this machine: which are free, and which process listens.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};

/// A listening socket.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listener {
    /// The port that it listens on.
    pub port: u16,
    /// The address that it listens on.
    pub address: IpAddr,
    /// The id of the process that owns it.
    pub pid: u32,
}

impl Listener {
    /// Whether it is reachable only from this machine.
    pub fn is_loopback(&self) -> bool {
        match self.address {
            IpAddr::V4(address) => address.is_loopback(),
            IpAddr::V6(address) => {
                address.is_loopback() || address.to_ipv4_mapped().is_some_and(|address| address.is_loopback())
            }
        }
    }
}

/// Whether the port is free on all IPv4 addresses of this machine.
pub fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok()
}

/// The sockets that these processes listen on.
pub fn listeners(pids: &BTreeSet<u32>) -> Vec<Listener> {
    let sockets = listening_sockets();
    let mut found = Vec::new();
    for pid in pids {
        let Ok(entries) = fs_err::read_dir(format!("/proc/{pid}/fd")) else { continue };
        for entry in entries.flatten() {
            let Ok(target) = fs_err::read_link(entry.path()) else { continue };
            let target = target.to_string_lossy();
            let inode = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
            if let Some((address, port)) = inode.and_then(|inode| sockets.get(inode)) {
                found.push(Listener { port: *port, address: *address, pid: *pid });
            }
        }
    }
    found.sort();
    found.dedup_by_key(|listener| (listener.port, listener.address));
    found
}

/// The process that listens on this port, if visible to this user: pid and command line.
pub fn holder(port: u16) -> Option<(u32, String)> {
    let entries = fs_err::read_dir("/proc").ok()?;
    let pids: BTreeSet<u32> =
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok()).collect();
    let listener = listeners(&pids).into_iter().find(|listener| listener.port == port)?;
    let command = fs_err::read(format!("/proc/{}/cmdline", listener.pid)).unwrap_or_default();
    let command = String::from_utf8_lossy(&command).replace('\0', " ").trim().chars().take(80).collect();
    Some((listener.pid, command))
}

/// The listening TCP sockets, by inode.
fn listening_sockets() -> BTreeMap<String, (IpAddr, u16)> {
    let mut sockets = BTreeMap::new();
    for file in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = fs_err::read_to_string(file).unwrap_or_default();
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            // 0A is TCP_LISTEN.
            if let (Some(local), Some(&"0A"), Some(inode)) = (fields.get(1), fields.get(3), fields.get(9))
                && let Some(place) = parse_address(local)
            {
                sockets.insert((*inode).to_owned(), place);
            }
        }
    }
    sockets
}

/// Parses an address such as `0100007F:1F90`: groups of four bytes in native byte order.
fn parse_address(text: &str) -> Option<(IpAddr, u16)> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut bytes = Vec::new();
    for group in address.as_bytes().chunks(8) {
        let group = u32::from_str_radix(std::str::from_utf8(group).ok()?, 16).ok()?;
        bytes.extend(group.to_ne_bytes());
    }
    let address = match bytes.len() {
        4 => IpAddr::V4(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3])),
        16 => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)),
        _ => return None,
    };
    Some((address, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_found_with_their_address_and_process() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(!is_free(port));
        let mine = listeners(&BTreeSet::from([std::process::id()]));
        let found = mine.iter().find(|listener| listener.port == port).unwrap();
        assert!(found.is_loopback());
        assert_eq!(holder(port).unwrap().0, std::process::id());
        let mapped = parse_address("0000000000000000FFFF00000100007F:5208").unwrap();
        assert!(Listener { port: mapped.1, address: mapped.0, pid: 1 }.is_loopback());
    }
}
