//! What a site has: partitions with their types of node.

use std::collections::BTreeMap;

use super::Slurm;
use super::login::Effect;
use super::queue;
use crate::error::{Error, ErrorKind, Result, Status};
use crate::provider::{GpuOffer, Offer};
use crate::util::human;

/// What the nodes of one offer have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct NodeKind {
    partition: String,
    gres: String,
    cpus: u32,
    memory: u64,
    limit: String,
}

impl Slurm {
    pub(super) async fn list_offers(&self) -> Result<Vec<Offer>> {
        let doing = format!("ask {} for its partitions", self.login.name());
        let limit = std::time::Duration::from_secs(120);
        let lines = self.login.ask(&doing, "main() { offers; }", &[], Effect::None, limit).await?;
        if lines.iter().all(|line| line != "::seen") {
            return Err(Error::new(ErrorKind::Provider, doing)
                .because("its answer was cut off")
                .status(Status::Temporary));
        }
        Ok(read(&lines, self.login.name()))
    }
}

/// How many nodes of a kind there are, and of them those that take a job now; and the free GPUs of all.
#[derive(Debug, Default)]
struct Count {
    nodes: usize,
    open: usize,
    free_gpus: u32,
}

/// The offers in the lines `::node PARTITION|GRES|GRES IN USE|CPUS|MEMORY|STATE|LIMIT|NODE`: one for each partition and
/// type of node. CPUs are `ALLOCATED/IDLE/OTHER/TOTAL`.
fn read(lines: &[String], place: &str) -> Vec<Offer> {
    let mut kinds: BTreeMap<NodeKind, Count> = BTreeMap::new();
    for line in lines.iter().filter_map(|line| line.strip_prefix("::node ")) {
        let fields: Vec<&str> = line.trim_end_matches('|').split('|').collect();
        let [partition, gres, used, cpus, memory, state, limit, _] = fields.as_slice() else { continue };
        let cpus: Vec<u32> = cpus.split('/').map(|text| text.parse().unwrap_or_default()).collect();
        let [_, idle, _, total] = cpus.as_slice() else { continue };
        let kind = NodeKind {
            partition: (*partition).to_owned(),
            gres: (*gres).to_owned(),
            cpus: *total,
            memory: memory.trim_end_matches('+').parse::<u64>().unwrap_or_default() << 20,
            limit: (*limit).to_owned(),
        };
        let sum = |gres: &str| gpus(gres).iter().filter_map(|gpu| gpu.count).sum::<u32>();
        let free = sum(gres).saturating_sub(sum(used));
        // A `*` or another sign marks a node that does not answer, or is about to be drained.
        let takes_jobs = ["idle", "mixed"].contains(state) && *idle > 0;
        let count = kinds.entry(kind).or_default();
        count.nodes += 1;
        if takes_jobs && (free > 0 || sum(gres) == 0) {
            count.open += 1;
            count.free_gpus += free;
        }
    }
    let offer = |(kind, count): (NodeKind, Count)| {
        let limit = queue::duration(&kind.limit).and_then(|limit| std::time::Duration::try_from(limit).ok());
        let limit =
            limit.map_or_else(|| "no time limit".to_owned(), |limit| format!("at most {}", human::duration(limit)));
        let gpus = gpus(&kind.gres);
        let free = match gpus.is_empty() {
            true => format!("{} of {} with free CPUs", count.open, human::count(count.nodes, "node")),
            false => format!(
                "{} free on {} of {}",
                human::count(count.free_gpus as usize, "GPU"),
                count.open,
                human::count(count.nodes, "node")
            ),
        };
        Offer {
            name: kind.partition,
            place: format!("{place}: {free}, {limit}"),
            cpus: kind.cpus,
            memory: kind.memory,
            gpus,
            price_per_hour: None,
            free: if count.open > 0 { "now".to_owned() } else { "after a wait in the queue".to_owned() },
        }
    };
    kinds.into_iter().map(offer).collect()
}

/// `gpu:a100:2(S:0-1),gpu:v100:1,shard:8`; `(null)` for none. MIG slices are types of their own: `gpu:1g.10gb:7`.
fn gpus(gres: &str) -> Vec<GpuOffer> {
    let one = |part: &str| {
        let part = part.split('(').next().unwrap_or_default();
        let fields: Vec<&str> = part.split(':').collect();
        let (model, count) = match fields.as_slice() {
            ["gpu", count] => ("GPU", count),
            ["gpu", model, count] => (*model, count),
            ["shard", count] | ["shard", _, count] => ("shard of a GPU", count),
            _ => return None,
        };
        Some(GpuOffer { model: model.to_owned(), count: count.parse().ok() })
    };
    gres.split(',').filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_one_kind_are_one_offer() {
        let lines: Vec<String> = [
            "::node gpu|gpu:a100:2(S:0)|gpu:a100:1(IDX:0)|4/4/0/8|64000|mixed|1-00:00:00|n1|",
            "::node gpu|gpu:a100:2(S:0)|gpu:a100:2(IDX:0-1)|4/4/0/8|64000|mixed|1-00:00:00|n2|",
            "::node gpu|gpu:a100:2(S:0)|gpu:a100:0(IDX:N/A)|0/0/8/8|64000|drained|1-00:00:00|n4|",
            "::node gpu|gpu:1g.10gb:7,shard:8|gpu:1g.10gb:0,shard:0|0/8/0/8|64000|idle|infinite|n3|",
            "::node cpu|(null)|gpu:0|64/0/0/64|256000|allocated|10:00|c1|",
        ]
        .map(str::to_owned)
        .to_vec();
        let offers = read(&lines, "site");
        let shown: Vec<(&str, String, &str, &str)> = offers
            .iter()
            .map(|offer| {
                let gpus: Vec<String> = offer.gpus.iter().map(GpuOffer::describe).collect();
                (offer.name.as_str(), gpus.join(", "), offer.place.as_str(), offer.free.as_str())
            })
            .collect();
        let later = "after a wait in the queue";
        assert_eq!(
            shown,
            [
                ("cpu", String::new(), "site: 0 of 1 node with free CPUs, at most 10m", later),
                (
                    "gpu",
                    "7 x 1g.10gb, 8 x shard of a GPU".to_owned(),
                    "site: 15 GPUs free on 1 of 1 node, no time limit",
                    "now"
                ),
                ("gpu", "2 x a100".to_owned(), "site: 1 GPU free on 1 of 3 nodes, at most 24h", "now"),
            ]
        );
        assert_eq!(offers[2].memory, 64000 << 20);
    }
}
