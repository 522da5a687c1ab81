//! One worker by hand: it is stopped, started or killed by one exec on its host.

use super::layout::{no_place, project_of};
use super::on_hosts::OnHosts;
use crate::engine::Ledger;
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::project::ByHand;
use crate::spec::NodeSpec;

/// Stops, starts or kills a worker.
///
/// That it is to be stopped is on record before it ends, and that it is to run only once it runs: a command that was
/// broken off in between is repeated, or `up` starts the worker.
pub(super) async fn by_hand(on: &OnHosts, ledger: &Ledger, worker: &NodeSpec, by_hand: ByHand) -> Result<()> {
    on.recall_places(&ledger.state()).await?;
    let (project, key) = (project_of(&worker.host), worker.key.clone());
    if by_hand == ByHand::Stop {
        ledger.note_project(&project, |project| project.stopped_by_hand.extend([key.clone()]))?;
    }
    on.act_on(worker, by_hand).await?;
    if by_hand == ByHand::Start {
        ledger.note_project(&project, |project| project.stopped_by_hand.retain(|stopped| *stopped != key))?;
    }
    ledger.compact()
}

impl OnHosts {
    async fn act_on(&self, worker: &NodeSpec, by_hand: ByHand) -> Result<()> {
        let host = &worker.host;
        self.fleet.place(host).ok_or_else(|| no_place(host))?;
        let of_worker = self.scope.tag(&worker.key);
        let script =
            self.runtime().worker_script(&self.fleet.tag(host), &self.fleet.folders(host), &of_worker, by_hand);
        let doing = format!("{} {}", by_hand.name(), worker.key.display_name());
        let lines = self.fleet.run(host, &format!("{doing} on"), &script).await?;
        if lines.last().is_some_and(|line| *line == by_hand.done()) {
            return Ok(());
        }
        let said: Vec<&str> = lines.iter().map(String::as_str).filter(|line| !line.starts_with("::")).collect();
        let why = if said.is_empty() { "its host did not say that it is done".to_owned() } else { said.join("\n") };
        let cluster = &self.spec.name;
        Err(Error::new(ErrorKind::Host, doing)
            .because(why)
            .hint(format!("gpucl status -c {cluster}   # what runs"))
            .hint("gpucl up   # brings back what does not run"))
    }
}
