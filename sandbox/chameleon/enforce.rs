//! Enforcement of a site's limits: length and extension of leases, and service units.

use jiff::{SignedDuration, Timestamp};

use super::answer::Answer;
use super::leases::hosts_in;
use super::state::{Caller, Lease, Reservation, State};

impl State {
    pub(super) fn enforce_length(&self, asked: SignedDuration, longest: u64) -> Result<(), Answer> {
        let seconds = asked.as_secs();
        if u64::try_from(seconds).is_ok_and(|seconds| seconds <= longest) {
            return Ok(());
        }
        Err(Answer::blazar(
            self.enforcement(),
            format!(
                "Lease duration of {seconds} seconds must be less than or equal to the maximum lease duration of {longest} seconds."
            ),
        ))
    }

    fn enforcement(&self) -> u16 {
        if self.config.quirks.enforcement_400 { 400 } else { 403 }
    }

    /// Checks the project's remaining service units; Chameleon gets them from its portal.
    pub(super) fn enforce_units(
        &self,
        parts: &[Reservation],
        asked: SignedDuration,
        caller: &Caller,
    ) -> Result<(), Answer> {
        let Some(left) = self.config.quirks.service_units else { return Ok(()) };
        let units = self.units(parts, asked);
        if units <= left {
            return Ok(());
        }
        let text =
            format!("Reservation for project {} would spend {units:.2} SUs, only {left:.2} left", caller.project);
        Err(Answer::blazar(self.enforcement(), text))
    }

    fn units(&self, parts: &[Reservation], time: SignedDuration) -> f64 {
        let factors = parts.iter().flat_map(hosts_in).filter_map(|id| self.host_by_id(id)).map(|host| {
            let factor = self.properties(host).get("su_factor").and_then(|value| value.as_str()?.parse().ok());
            factor.unwrap_or(1.0)
        });
        factors.sum::<f64>() * time.as_secs_f64() / 3600.0
    }

    pub(super) fn enforce_change(&self, lease: &Lease, changed: &Lease, now: Timestamp) -> Result<(), Answer> {
        let longest = self.config.longest_lease.as_secs();
        if changed.end <= lease.end {
            return Ok(());
        }
        match self.config.quirks.update_window {
            // With a window, the length counts from the previous end.
            Some(window) => {
                if lease.end.duration_since(now).as_secs_f64() > window.as_secs_f64() {
                    let text = format!(
                        "Lease can only be extended within {} seconds of the leases current end time.",
                        window.as_secs()
                    );
                    return Err(Answer::blazar(self.enforcement(), text));
                }
                self.enforce_length(changed.end.duration_since(lease.end), longest)?;
            }
            None => self.enforce_length(changed.end.duration_since(changed.start), longest)?,
        }
        let Some(left) = self.config.quirks.service_units else { return Ok(()) };
        let more = self.units(&lease.reservations, changed.end.duration_since(lease.end));
        if more > left {
            let text = format!("Reservation update would spend {more:.2} more SUs, only {left:.2} left");
            return Err(Answer::blazar(self.enforcement(), text));
        }
        Ok(())
    }
}
