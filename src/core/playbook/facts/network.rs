//! Parses addresses in the kernel's format of `/proc/net`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// `0100007F:1F90 00000000000000000000000000000000:0016 …`: each group of four bytes in host byte order, the port in
/// plain hexadecimal.
pub(super) fn listening(rest: &str) -> Vec<SocketAddr> {
    let mut found: Vec<SocketAddr> = rest.split_whitespace().filter_map(socket).collect();
    found.sort();
    found.dedup();
    found
}

fn socket(word: &str) -> Option<SocketAddr> {
    let (address, port) = word.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    // Every platform of Ray is little-endian.
    let group = |at: usize| u32::from_str_radix(address.get(at..at + 8)?, 16).ok().map(u32::to_le_bytes);
    let address = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(group(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (number, place) in bytes.chunks_exact_mut(4).enumerate() {
                place.copy_from_slice(&group(number * 8)?);
            }
            let address = Ipv6Addr::from(bytes);
            address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4)
        }
        _ => return None,
    };
    Some(SocketAddr::new(address, port))
}

/// The machine's addresses, without loopback and unspecified ones.
pub(super) fn addresses(rest: &str) -> Vec<Ipv4Addr> {
    rest.split_whitespace()
        .filter_map(|word| word.parse().ok())
        .filter(|address: &Ipv4Addr| !address.is_loopback() && !address.is_unspecified())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_hexadecimal_is_read() {
        let found = listening(
            "00000000:0016 0100007F:1F90 00000000000000000000000001000000:1F91 00000000000000000000000000000000:0016 0000000000000000FFFF00000100007F:1F90 x:y",
        );
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, ["0.0.0.0:22", "127.0.0.1:8080", "[::]:22", "[::1]:8081"]);
        let own = addresses("10.213.0.5 127.0.0.1 nonsense 172.17.0.1 ");
        assert_eq!(own, [Ipv4Addr::new(10, 213, 0, 5), Ipv4Addr::new(172, 17, 0, 1)]);
    }
}
