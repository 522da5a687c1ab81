//! Tag, title, state and condition of a lease.

use super::api::Lease;
use crate::name::Tag;
use crate::provider::LeaseState;

/// The tag at the end of a lease's name.
pub(super) fn tag_of(lease: &Lease) -> Option<Tag> {
    lease.name.rsplit(' ').next()?.parse().ok()
}

/// A lease's name without our tag.
pub(super) fn title(lease: &Lease) -> &str {
    match (tag_of(lease), lease.name.rsplit_once(' ')) {
        (Some(_), Some((title, _))) => title,
        _ => &lease.name,
    }
}

/// Maps the service's status to a lease state.
pub(super) fn state_of(lease: &Lease) -> LeaseState {
    match lease.status.to_uppercase().as_str() {
        "PENDING" => LeaseState::Pending,
        "ACTIVE" => LeaseState::Active,
        "TERMINATED" => LeaseState::Ended,
        "ERROR" => LeaseState::Failed,
        _ => LeaseState::Changing,
    }
}

/// Whether some of the lease's hosts have failed.
pub(super) fn is_degraded(lease: &Lease) -> bool {
    lease.degraded || lease.reservations.iter().any(|reservation| reservation.missing_resources)
}

/// The warning for a degraded lease.
pub(super) fn describe_degraded(lease: &Lease) -> String {
    format!(
        "the lease {} is degraded: one of its hosts has failed, and the service found no other; a server may not start",
        title(lease)
    )
}

/// Whether a lease is being ended or deleted.
pub(super) fn is_leaving(lease: &Lease) -> bool {
    ["TERMINATING", "DELETING"].contains(&lease.status.to_uppercase().as_str())
}
