//! A trial of an application credential: what later commands will do with it.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::super::api::{FailureKind, Site};
use super::super::credentials::Credentials;
use super::entry::Entry;
use crate::error::Result;
use crate::provider::{Context, LoggedIn};
use crate::util::when;

/// Tries an application credential, and reports what it gives access to. Changes nothing.
pub(super) async fn tried(context: &Context, credentials: Credentials) -> Result<(LoggedIn, Entry)> {
    let site = Site::new(credentials.clone(), context.events.clone())?;
    let who = site.who().await?;
    if who.restricted == Some(true) {
        return Err(site.restricted("log in").into());
    }
    let mut warnings = Vec::new();
    let hosts = site.hosts().await?;
    // Try the reads that later commands need: some roles may lease but not list.
    let (allocations, leases, servers, end) =
        tokio::join!(site.allocations(), site.leases(), site.servers(), site.credential_end());
    for refused in [allocations.err(), leases.err(), servers.err()] {
        match refused {
            Some(failure) if failure.kind == FailureKind::Forbidden => {
                warnings.push(format!("it may not {}: {}", failure.doing, failure.text));
            }
            Some(failure) => return Err(failure.into()),
            None => {}
        }
    }
    let has = |role: &str| who.roles.iter().any(|name| name == role);
    if !has("reader") && !has("admin") {
        warnings.push(format!(
            "its roles are {}, and `reader` is not among them: some services may refuse to list resources",
            who.roles.join(", ")
        ));
    }
    if let Ok(Some(end)) = end {
        let zone = when::zone(context.user_environment.variable("TZ"));
        warnings.push(ends(end, &zone));
    }
    let entry = Entry::new(&credentials, site.region(), &who.project_name)?;
    let reservable = hosts.iter().filter(|host| host.reservable).count();
    let done = LoggedIn {
        account: entry.account(),
        kept: entry.text()?,
        place: site.region().to_owned(),
        project: who.project_name.clone(),
        seen: vec![
            format!("you are {} in {}, with the roles {}", who.user_name, who.project_name, who.roles.join(", ")),
            format!("leases can be made; {reservable} of {} hosts can be reserved", hosts.len()),
        ],
        warnings,
    };
    Ok((done, entry))
}

/// What a credential with an end, such as one of `cc-login`, cannot do.
pub(crate) fn ends(end: Timestamp, zone: &TimeZone) -> String {
    format!(
        "the application credential ends at {}: after that no lease is extended or deleted by it, and no deadline kept; \
         one that lasts: gpucl login chameleon",
        when::both(end, zone)
    )
}
