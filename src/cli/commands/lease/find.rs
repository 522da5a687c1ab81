//! The site of a lease: where one of that name is, or where a new one begins first.

use super::{LeaseCommand, reservations, title};
use crate::cli::reserving;
use crate::cluster::sites::{Answers, OpenSite, SiteFailure, SiteOffer, best, of_all, why};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Key;
use crate::provider::{Lease, LeaseAsk, LeaseState, Proposal};

impl LeaseCommand<'_> {
    /// Finds the lease of this name or id, at whichever site it is.
    pub(super) async fn find(&self, name: &str) -> Result<(&OpenSite, Lease)> {
        let Answers { found, failed } = self.sites.ask(async |site| reservations(site)?.lease(name).await).await;
        let (absent, silent): (Vec<SiteFailure>, Vec<SiteFailure>) =
            failed.into_iter().partition(|failure| failure.error.kind() == ErrorKind::NotFound);
        if found.is_empty() {
            // Whether it exists is unknown while a site is silent.
            let failed = if silent.is_empty() || self.sites.len() == 1 { [absent, silent].concat() } else { silent };
            return Err(of_all(&failed, &format!("find the lease {name}")));
        }
        reserving::report(self.app, &silent);
        one_of(found, name)
    }

    /// The site at which a lease like this begins first, and is then cheapest, and what would be requested there.
    pub(super) async fn propose(&self, key: &Key, ask: &LeaseAsk) -> Result<(&OpenSite, Proposal)> {
        let scope = crate::cluster::lease::scope(&self.settings);
        let asked = self.sites.ask(async |site| reservations(site)?.propose(&scope, key, ask).await).await;
        let Answers { mut found, failed } = asked.or_none("reserve hosts")?;
        let offer = |(site, proposal): &(&OpenSite, Proposal)| SiteOffer {
            site: site.name().to_owned(),
            start: Some(proposal.start).filter(|_| !proposal.now),
            price: proposal.price_per_hour,
        };
        let offers: Vec<SiteOffer> = found.iter().map(offer).collect();
        let index = best(&offers).unwrap_or_default();
        let (site, mut proposal) = found.swap_remove(index);
        if self.sites.len() > 1 {
            proposal.notes.insert(0, why(&offers, index, &failed, &self.zone));
        }
        Ok((site, proposal))
    }
}

/// The lease that is meant: of several of that name, the only one of ours that has not ended.
fn one_of<'a>(mut found: Vec<(&'a OpenSite, Lease)>, name: &str) -> Result<(&'a OpenSite, Lease)> {
    let is_live = |lease: &Lease| lease.state != LeaseState::Ended;
    let keeps: [&dyn Fn(&Lease) -> bool; 2] = [&|lease| lease.ours && is_live(lease), &is_live];
    for keeps in keeps {
        if found.len() > 1 && found.iter().any(|(_, lease)| keeps(lease)) {
            found.retain(|(_, lease)| keeps(lease));
        }
    }
    match found.len() {
        1 => Ok(found.remove(0)),
        _ => {
            let which =
                |(site, lease): &(&OpenSite, Lease)| format!("{} at {} ({})", title(lease), site.name(), lease.id);
            let which: Vec<String> = found.iter().map(which).collect();
            let error = Error::new(ErrorKind::Usage, format!("find the lease {name}"))
                .because(format!("leases at several sites have that name: {}", which.join(", ")));
            Err(found.iter().fold(error, |error, (site, _)| error.hint(format!("choose one: --site {}", site.name()))))
        }
    }
}
