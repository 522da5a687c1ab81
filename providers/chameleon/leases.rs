//! What the site tells of a lease.

use super::api::Lease;
use super::cloud::tag_of;
use crate::provider::LeaseState;

/// A lease's name without our tag.
pub(super) fn title(lease: &Lease) -> &str {
    match (tag_of(lease), lease.name.rsplit_once(' ')) {
        (Some(_), Some((title, _))) => title,
        _ => &lease.name,
    }
}

/// How far a lease has come.
pub(super) fn state_of(lease: &Lease) -> LeaseState {
    match lease.status.to_uppercase().as_str() {
        "PENDING" => LeaseState::Pending,
        "ACTIVE" => LeaseState::Active,
        "TERMINATED" => LeaseState::Ended,
        "ERROR" => LeaseState::Failed,
        _ => LeaseState::Changing,
    }
}

/// Some of its hosts have failed.
pub(super) fn is_degraded(lease: &Lease) -> bool {
    lease.degraded || lease.reservations.iter().any(|reservation| reservation.missing_resources)
}

/// What that means.
pub(super) fn describe_degraded(lease: &Lease) -> String {
    format!(
        "the lease {} is degraded: one of its hosts has failed, and the service found no other; a server may not start",
        title(lease)
    )
}

/// A lease that is on its way out.
pub(super) fn is_leaving(lease: &Lease) -> bool {
    ["TERMINATING", "DELETING"].contains(&lease.status.to_uppercase().as_str())
}
