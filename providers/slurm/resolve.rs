//! What is known before anything is requested: the number of nodes, what each has, and whether Slurm would take the job.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::login::Effect;
use super::names::job_tag;
use super::{Slurm, found, refusal};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Scope;
use crate::provider::{GpuOffer, HostRequest, Offer, Resolved};
use crate::util::when;

/// How long the question may take.
const ANSWER: std::time::Duration = std::time::Duration::from_secs(120);

impl Slurm {
    pub(super) async fn resolve_hosts(&self, scope: &Scope, hosts: Vec<HostRequest>) -> Result<Resolved> {
        let count = hosts.len();
        let allocation = self.allocation();
        let finding = found::finding(count, allocation)?;
        let hosts: Vec<HostRequest> =
            hosts.into_iter().map(|host| HostRequest { found: finding.clone(), ..host }).collect();
        let seen = self.see().await?;
        let mut notes = Vec::new();
        let job = seen.job(&job_tag(scope));
        match (job, allocation) {
            (Some(_), _) => {}
            (None, Some(allocation)) => {
                notes.push(format!("no job is submitted: it starts in your allocation {allocation}, which stays"));
            }
            (None, None) => notes.extend(self.try_job(scope, count).await?),
        }
        let end = job.filter(|job| job.runs()).and_then(|job| seen.now.checked_add(job.left?).ok());
        let offers = self.offer().into_iter().cycle().take(count).collect();
        Ok(Resolved { hosts, offers, start: None, end, notes })
    }

    /// The user's own allocation to start in: the spec's, or that of the shell of `salloc` on the login machine.
    fn allocation(&self) -> Option<u64> {
        let of_shell = || {
            let is_here = self.settings.login().is_none();
            self.context.user_environment.variable("SLURM_JOB_ID").filter(|_| is_here)?.parse().ok()
        };
        self.settings.allocation.or_else(of_shell)
    }

    /// Asks Slurm whether it would take the job, and when it would start it.
    async fn try_job(&self, scope: &Scope, nodes: usize) -> Result<Option<String>> {
        let doing = format!("ask Slurm on {} whether it would take the job", self.login.name());
        let script = self.script(scope, nodes)?.replace("@home@", "/tmp");
        let lines =
            self.login.ask(&doing, "main() { try; }", &[("script", script.as_str())], Effect::None, ANSWER).await?;
        let tried = lines.iter().find_map(|line| line.strip_prefix("::tried ")?.split_once(' '));
        let away = lines.iter().find_map(|line| line.strip_prefix("::away "));
        match tried {
            Some(("0", said)) => Ok(away.map_or_else(|| start_of(said), |nodes| Some(no_start(nodes)))),
            Some((_, said)) => Err(refusal::error(&doing, said)),
            None => Err(Error::new(ErrorKind::Provider, doing).because("the login machine's answer was cut off")),
        }
    }

    /// What each node of the job has, as far as the spec says.
    fn offer(&self) -> Option<Offer> {
        let gpus = self.settings.gpus.as_ref()?;
        let (model, count) = gpus.parts();
        let memory =
            self.settings.memory().ok().flatten().and_then(|text| text.trim_end_matches('M').parse::<u64>().ok());
        Some(Offer {
            name: self.settings.partition.clone().unwrap_or_else(|| "the default partition".to_owned()),
            place: self.login.name().to_owned(),
            cpus: self.settings.cpus.unwrap_or(1),
            memory: memory.unwrap_or_default() << 20,
            gpus: vec![GpuOffer { model: model.unwrap_or_else(|| "GPU".to_owned()), count: Some(count) }],
            price_per_hour: None,
            free: "in the queue".to_owned(),
        })
    }
}

/// What is said where Slurm cannot name a start: these nodes are not in service.
fn no_start(nodes: &str) -> String {
    format!("Slurm cannot say when the job would start: not in service now: {nodes}")
}

/// `sbatch: Job 17 to start at 2026-11-25T19:12:00 using 4 processors on nodes n1 in partition gpu`.
fn start_of(said: &str) -> Option<String> {
    let rest = said.split(" to start at ").nth(1)?;
    let mut words = rest.split_whitespace();
    // `SLURM_TIME_FORMAT` asks for seconds since the epoch; without it there is a time in the site's zone.
    let at = words.next()?;
    let at = match at.parse().ok().and_then(|at| Timestamp::from_second(at).ok()) {
        Some(at) => when::local(at, &TimeZone::system()),
        None => format!("{at} (the site's time)"),
    };
    let nodes = rest.split(" on nodes ").nth(1)?.split_whitespace().next()?;
    Some(format!("Slurm would start the job at {at} on {nodes}, if nothing comes before it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_of_test_only_is_read() {
        let said = "sbatch: Job 17 to start at 2026-11-25T19:12:00 using 4 processors on nodes n1 in partition gpu ";
        let note = start_of(said).unwrap();
        assert!(note.contains("2026-11-25T19:12:00") && note.contains("on n1,"), "{note}");
        assert_eq!(start_of("sbatch: allocation failure"), None);
    }
}
