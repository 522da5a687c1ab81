//! The `lease` and `calendar` commands: calendar, proposals, and existing leases.

use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};

use super::api::Lease as SiteLease;
use super::api::{Effect, FailureKind};
use super::cloud::{Calendar, Cloud, login_note, restricted};
use super::found::{LeaseFound, SharedFound, Wanted};
use super::leases::{state_of, tag_of, title};
use super::policy::{ExtensionAsk, may_extend};
use super::proposal::{no_slot, price};
use super::resolve::{named, price_of};
use super::resources::ChameleonResource;
use super::resources::lease as leases;
use super::slots::{self, matches, natural};
use crate::error::{Error, ErrorKind, Result};
use crate::name::{Key, Scope};
use crate::provider::{
    Booking, CalendarRow, EndAsk, Finding, HostFilter, Lease, LeaseAsk, LeaseState, Proposal, Reservations,
    ResourceRequest,
};
use crate::util::when;

/// How long to wait for the service to show a change of a lease as done.
const CHANGE_LIMIT: SignedDuration = SignedDuration::from_secs(60);

impl Cloud {
    fn lease_with_details(&self, lease: &SiteLease, calendar: &Calendar, user: &str, place: &str) -> Lease {
        Lease {
            id: lease.id.clone(),
            name: lease.name.clone(),
            state: state_of(lease),
            status: lease.status.clone(),
            start: lease.start,
            end: lease.end,
            place: place.to_owned(),
            hosts: calendar.hosts_of(lease),
            degraded: lease.degraded,
            ours: lease.user_id == user,
            tag: tag_of(lease),
        }
    }

    /// Waits until a lease is no longer `Changing`, or `CHANGE_LIMIT` is over.
    async fn wait_changed(&self, id: &str) -> Result<Lease> {
        let begun = Timestamp::now();
        loop {
            let lease = self.lease(id).await?;
            if lease.state != LeaseState::Changing || when::between(begun, Timestamp::now()) > CHANGE_LIMIT {
                return Ok(lease);
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
}

#[async_trait]
impl Reservations for Cloud {
    async fn calendar(&self, filter: &HostFilter, until: Timestamp) -> Result<Vec<CalendarRow>> {
        let calendar = self.calendar_now(&filter.nodes).await?;
        let mut rows: Vec<CalendarRow> = calendar.rows.into_iter().filter(|row| matches(row, filter)).collect();
        for row in &mut rows {
            row.bookings.retain(|booking| booking.start < until);
        }
        rows.sort_by_key(|row| natural(&row.name));
        Ok(rows)
    }

    async fn propose(&self, _scope: &Scope, key: &Key, ask: &LeaseAsk) -> Result<Proposal> {
        let site = self.site_with(&ask.hosts.nodes).await?;
        let (who, login_end, calendar) = tokio::try_join!(
            async { Ok::<_, Error>(site.who().await?) },
            async { Ok(site.credential_end().await.ok().flatten()) },
            self.calendar_now(&ask.hosts.nodes)
        )?;
        if who.restricted == Some(true) {
            return Err(restricted(site));
        }
        let zone = self.zone();
        let mut slot = slots::plan(&calendar.rows, ask, &self.policy(), Timestamp::now(), &zone)
            .map_err(|none| no_slot(self, &none, ask))?;
        slot.notes.extend(login_note(site, login_end, slot.end, &zone));
        let stamp = slot.start.to_zoned(zone).strftime("%m%d-%H%M").to_string();
        let user = who.user_name.split('@').next().unwrap_or_default().to_owned();
        let usual = || format!("{user}-{}-{stamp}", slot.hosts.join("-"));
        let name = ask.name.clone().unwrap_or_else(usual);
        let wanted = Wanted { nodes: slot.hosts.clone(), count: slot.hosts.len(), ..Wanted::default() };
        let start = (!slot.now).then_some(slot.start);
        let lease = LeaseFound::New { start, end: slot.end, hosts: slot.hosts.clone() };
        Ok(Proposal {
            price: price(&calendar.rows, &slot),
            price_per_hour: price_of(&calendar.rows, &slot.hosts),
            place: site.region().to_owned(),
            start: slot.start,
            now: slot.now,
            end: slot.end,
            notes: slot.notes,
            request: ResourceRequest {
                found: Finding::of(&SharedFound { lease, title: Some(name.clone()), public: None })?,
                ..ResourceRequest::new(key.clone(), ChameleonResource::Lease.name(), leases::settings(&wanted))
            },
            hosts: slot.hosts,
            name,
        })
    }

    async fn leases(&self) -> Result<Vec<Lease>> {
        let site = self.site().await?;
        let (who, calendar) = tokio::try_join!(async { Ok::<_, Error>(site.who().await?) }, self.calendar_now(&[]))?;
        let mut leases: Vec<Lease> = calendar
            .leases
            .iter()
            .map(|lease| self.lease_with_details(lease, &calendar, &who.user_id, site.region()))
            .collect();
        leases.sort_by_key(|lease| (lease.start, lease.end));
        Ok(leases)
    }

    async fn lease(&self, name: &str) -> Result<Lease> {
        let site = self.site().await?;
        let (who, calendar) = tokio::try_join!(async { Ok::<_, Error>(site.who().await?) }, self.calendar_now(&[]))?;
        let lease = named(&calendar, name)?;
        Ok(self.lease_with_details(lease, &calendar, &who.user_id, site.region()))
    }

    async fn extend(&self, id: &str, end: EndAsk, may_shorten: bool) -> Result<Lease> {
        let site = self.site().await?;
        let (who, calendar) = tokio::try_join!(async { Ok::<_, Error>(site.who().await?) }, self.calendar_now(&[]))?;
        let lease = named(&calendar, id)?.clone();
        let doing = || format!("extend the lease {}", title(&lease));
        if lease.user_id != who.user_id {
            return Err(Error::new(ErrorKind::Provider, doing()).because("another user of the project made it"));
        }
        let new_end = match end {
            EndAsk::After(by) => when::later(lease.end, by),
            EndAsk::At(at) => at,
        };
        let own = |booking: &&Booking| booking.lease.as_deref() == Some(lease.id.as_str());
        let rows = calendar.rows.iter().filter(|row| row.bookings.iter().any(|booking| own(&booking)));
        let next = rows
            .flat_map(|row| row.bookings.iter().filter(|booking| !own(booking) && booking.start >= lease.end))
            .min_by_key(|booking| booking.start);
        let (policy, zone) = (self.policy(), self.zone());
        let ask = ExtensionAsk { start: lease.start, end: lease.end, new_end, may_shorten };
        let extension = may_extend(ask, Timestamp::now(), &policy, next, &zone)
            .map_err(|why| Error::new(ErrorKind::Provider, doing()).because(why.cause(&policy, &zone)))?;
        for note in &extension.notes {
            self.context.events.note(note);
        }
        match site.move_end(&lease.id, extension.end).await {
            Ok(_) => self.wait_changed(&lease.id).await,
            // The response may be lost although the end moved, or the failed call broke the lease: read its state.
            Err(failure) => {
                let now = self.wait_changed(&lease.id).await?;
                if failure.effect == Effect::Unknown && now.end == extension.end && now.state != LeaseState::Failed {
                    return Ok(now);
                }
                let is_hurt = now.state == LeaseState::Failed;
                let end = when::both(now.end, &zone);
                let error = match failure.kind {
                    FailureKind::NotEnough => Error::from(failure).because("somebody else has a host at that time"),
                    _ => Error::from(failure),
                };
                Err(match is_hurt {
                    true => error.because("the lease is now in ERROR: the service failed to change it"),
                    false => error.because(format!("the lease ends at {end}, as before")),
                })
            }
        }
    }

    async fn delete(&self, id: &str) -> Result<()> {
        leases::delete(self, id).await
    }

    async fn wait_active(&self, id: &str) -> Result<Lease> {
        let lease = leases::wait_active(self, id).await?;
        self.lease(&lease.id).await
    }
}
