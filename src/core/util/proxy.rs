//! A proxy that the spec gives to jobs is for the world outside: the cluster's own servers are reached past it.

use std::collections::BTreeMap;

/// The variables that name a proxy (curl, Python's `urllib`, requests and boto3), in small letters.
const PROXIES: &[&str] = &["http_proxy", "https_proxy", "all_proxy"];
/// Those that name what is reached without one. Some programs read only one of them.
const EXCEPTIONS: &[&str] = &["no_proxy", "NO_PROXY"];
/// This machine, in every environment.
const LOOPBACK: &[&str] = &["localhost", "127.0.0.1", "::1"];

/// Adds these hosts, and the loopback, to the exceptions where the environment names a proxy.
pub fn past_proxy(environment: &mut BTreeMap<String, String>, hosts: &[String]) {
    if !environment.keys().any(|name| PROXIES.contains(&name.to_ascii_lowercase().as_str())) {
        return;
    }
    let known: Vec<String> = EXCEPTIONS
        .iter()
        .filter_map(|name| environment.get(*name))
        .flat_map(|list| list.split(','))
        .map(|one| one.trim().to_owned())
        .filter(|one| !one.is_empty())
        .collect();
    let mut all: Vec<String> = Vec::new();
    for one in known.into_iter().chain(LOOPBACK.iter().map(|host| (*host).to_owned())).chain(hosts.iter().cloned()) {
        if !all.contains(&one) {
            all.push(one);
        }
    }
    for name in EXCEPTIONS {
        environment.insert((*name).to_owned(), all.join(","));
    }
}

/// The host of a URL or of `host:port`.
pub fn host_of(address: &str) -> String {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let place = rest.split('/').next().unwrap_or_default();
    match place.strip_prefix('[') {
        Some(inner) => inner.split(']').next().unwrap_or_default().to_owned(),
        None => place.split(':').next().unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let mut environment = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        past_proxy(&mut environment, &["objectstore".to_owned(), "10.0.0.1".to_owned()]);
        environment
    }

    #[test]
    fn the_clusters_own_servers_are_reached_past_a_proxy() {
        for proxy in ["http_proxy", "HTTPS_PROXY", "all_proxy"] {
            let environment = with(&[(proxy, "http://proxy:3128")]);
            for name in ["no_proxy", "NO_PROXY"] {
                assert_eq!(environment[name], "localhost,127.0.0.1,::1,objectstore,10.0.0.1", "{proxy}");
            }
        }
        // What the spec says stays, whichever of the two it uses.
        let environment = with(&[("http_proxy", "x"), ("NO_PROXY", "example.org, 10.0.0.1")]);
        assert_eq!(environment["no_proxy"], "example.org,10.0.0.1,localhost,127.0.0.1,::1,objectstore");
        assert_eq!(environment["no_proxy"], environment["NO_PROXY"]);
        assert_eq!(with(&[("HF_HOME", "/x")]).len(), 1, "without a proxy nothing is added");
    }

    #[test]
    fn the_host_of_an_address_is_found() {
        for (address, host) in [
            ("http://objectstore:9000", "objectstore"),
            ("10.0.0.1:6379", "10.0.0.1"),
            ("ray://head:10001", "head"),
            ("http://[fd00::1]:9000/x", "fd00::1"),
        ] {
            assert_eq!(host_of(address), host);
        }
    }
}
