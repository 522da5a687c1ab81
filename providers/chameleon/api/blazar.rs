//! Blazar: leases, hosts, allocations.

use jiff::Timestamp;
use reqwest::Method;
use serde_json::json;

use super::failure::{Api, Failure, FailureKind};
use super::lease::{Allocation, Host, Lease, NewLease, date};
use super::site::Site;
use crate::provider::kit::http::{Effect, part};

const SERVICE: &str = "reservation";

impl Site {
    pub(crate) async fn leases(&self) -> Api<Vec<Lease>> {
        self.list(SERVICE, "/leases", "leases", "list the leases").await
    }

    /// One lease; `None` when it does not exist.
    pub(crate) async fn lease(&self, id: &str) -> Api<Option<Lease>> {
        self.one(SERVICE, &format!("/leases/{}", part(id)), "lease", &format!("read the lease {id}")).await
    }

    /// Makes a lease; fails at once if the credential is restricted.
    pub(crate) async fn create_lease(&self, new: &NewLease) -> Api<Lease> {
        let doing = format!("make the lease {}", new.name);
        let who = self.who().await?;
        if who.restricted == Some(true) {
            // The service would answer "Internal Server Error".
            return Err(self.restricted(&doing));
        }
        self.change(Method::POST, SERVICE, "/leases", Some(new.body()), "lease", &doing).await
    }

    /// The failure for a restricted application credential.
    pub(crate) fn restricted(&self, doing: &str) -> Failure {
        Failure::new(
            FailureKind::RestrictedCredential,
            self.at(doing),
            "the application credential is restricted, and a lease needs an unrestricted one",
        )
        .hint(self.unrestricted_hint())
    }

    pub(crate) async fn move_end(&self, id: &str, end: Timestamp) -> Api<Lease> {
        let doing = format!("move the end of the lease {id}");
        let body = json!({ "end_date": date(end) });
        self.change_blindly(Method::PUT, SERVICE, &format!("/leases/{}", part(id)), Some(body), &doing).await?;
        // The response shows a state that is already outdated, and some releases omit most of it.
        match self.lease(id).await {
            Ok(Some(lease)) => Ok(lease),
            Ok(None) => Err(Failure::new(FailureKind::NotFound, self.at(&doing), "it no longer exists")),
            Err(failure) => Err(failure.effect(Effect::Unknown)),
        }
    }

    /// Deletes a lease. Idempotent.
    pub(crate) async fn delete_lease(&self, id: &str) -> Api<()> {
        self.remove(SERVICE, &format!("/leases/{}", part(id)), &format!("delete the lease {id}")).await
    }

    /// The hosts that can be reserved.
    pub(crate) async fn hosts(&self) -> Api<Vec<Host>> {
        self.list(SERVICE, "/os-hosts", "hosts", "list the hosts").await
    }

    /// The bookings of all hosts, by all users.
    pub(crate) async fn allocations(&self) -> Api<Vec<Allocation>> {
        self.list(SERVICE, "/os-hosts/allocations", "allocations", "list who has which host").await
    }
}
