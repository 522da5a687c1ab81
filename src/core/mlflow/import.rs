//! Brings an export into a server. What is a copy of an item of the export is not made again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::Watch;
use super::client::Server;
use super::copying::{PARENT, Reader};
use super::record::{Counts, Run, tag};
use super::registry::{self, ImportOptions};
use super::source::Source;
use crate::error::Result;
use crate::util::text::printable_line;

/// Reads an export into a server. A whole copy that is there is left as it is; one that an interrupted import has left is
/// replaced.
///
/// # Errors
/// Before anything is changed: if the export is not whole, an experiment of it is deleted on the server, or a version's
/// number is taken. Later, if the server refuses or does not answer; the same import goes on where it ended.
pub async fn import(server: &Server, from: &Path, options: ImportOptions, watch: &dyn Watch) -> Result<Counts> {
    watch.doing("checking the export");
    let source = Source::open(from)?;
    let mut reader = Reader::new(server, watch, &source);
    reader.look().await?;
    let registry = registry::Plan::new(server, &source.registered, options).await?;
    watch.expects(source.bytes());
    reader.experiments().await?;
    let order = parents_first(&source.runs);
    for (index, run) in order.iter().enumerate() {
        watch.doing(&format!("run {} of {}: {}", index + 1, order.len(), printable_line(&run.name)));
        reader.run(run).await?;
    }
    for model in source.logged_models.values() {
        watch.doing(&format!("logged model {}", printable_line(&model.name)));
        reader.logged_model(model).await?;
    }
    for run in &order {
        reader.finish(run).await?;
    }
    registry.carry_out(&mut reader).await?;
    Ok(reader.counts)
}

/// The runs, each after its parent; those of a circle as they come.
fn parents_first(runs: &BTreeMap<String, Run>) -> Vec<&Run> {
    let (mut order, mut seen) = (Vec::new(), BTreeSet::new());
    for run in runs.values() {
        let (mut chain, mut at) = (Vec::new(), Some(run));
        while let Some(run) = at.filter(|run| seen.insert(run.id.as_str())) {
            chain.push(run);
            at = tag(&run.tags, PARENT).and_then(|parent| runs.get(parent));
        }
        order.extend(chain.into_iter().rev());
    }
    order
}
