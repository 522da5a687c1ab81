//! What `gpucl doctor` looks at: whether a site lets this login do what a cluster takes.

use super::api::Failure;
use super::cloud::Cloud;
use crate::error::{Error, Result};
use crate::provider::SiteFinding;

/// Inspects the site by reads alone. A login that fails is the result; a service that fails is a finding.
pub(super) async fn inspect(cloud: &Cloud) -> Result<Vec<SiteFinding>> {
    let site = cloud.site().await?;
    let who = site.who().await?;
    let (hosts, leases, servers, networks) =
        tokio::join!(site.hosts(), site.leases(), site.servers(), site.networks(cloud.settings.network()));
    let login = SiteFinding {
        what: "login",
        works: Some(true),
        saw: format!("{} in {}, with the roles {}", who.user_name, who.project_name, who.roles.join(", ")),
        fix: None,
    };
    let is_restricted = who.restricted == Some(true);
    let credential = SiteFinding {
        what: "credential",
        works: Some(!is_restricted),
        saw: if is_restricted { "it is restricted, and cannot make leases" } else { "it may make leases" }.to_owned(),
        fix: is_restricted.then(|| site.unrestricted_hint()),
    };
    Ok(vec![
        login,
        credential,
        service("hosts", hosts, |hosts| {
            let reservable = hosts.iter().filter(|host| host.reservable).count();
            format!("{reservable} of {} can be reserved", hosts.len())
        }),
        service("leases", leases, |leases| format!("{} of the project", leases.len())),
        service("servers", servers, |servers| format!("{} of the project", servers.len())),
        service("network", networks, |networks| match networks.as_slice() {
            [] => format!("there is none called {}", cloud.settings.network()),
            _ => cloud.settings.network().to_owned(),
        }),
    ])
}

/// A finding on a service: what it answered, or why it did not.
fn service<T>(
    what: &'static str,
    answer: std::result::Result<T, Failure>,
    saw: impl FnOnce(T) -> String,
) -> SiteFinding {
    match answer {
        Ok(answer) => SiteFinding { what, works: Some(true), saw: saw(answer), fix: None },
        Err(failure) => {
            let error = Error::from(failure);
            let fix = error.hints().first().cloned();
            SiteFinding { what, works: Some(false), saw: error.to_string(), fix }
        }
    }
}
