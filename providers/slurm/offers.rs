//! What a site has: partitions with their types of node.

use std::collections::BTreeMap;

use super::Slurm;
use super::login::Effect;
use super::queue;
use crate::error::{Error, ErrorKind, Result, Status};
use crate::provider::{GpuOffer, Offer};
use crate::util::human;

/// One line of `sinfo -N`: a node in a partition.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
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
            return Err(Error::new(ErrorKind::Provider, doing).because("its answer was cut off").status(Status::Temporary));
        }
        Ok(read(&lines, self.login.name()))
    }
}

/// The offers in the lines `::node PARTITION|GRES|CPUS|MEMORY|STATE|LIMIT|NODE`: one for each partition and type of node.
fn read(lines: &[String], place: &str) -> Vec<Offer> {
    let mut kinds: BTreeMap<Kind, (usize, usize)> = BTreeMap::new();
    for line in lines.iter().filter_map(|line| line.strip_prefix("::node ")) {
        let fields: Vec<&str> = line.split('|').collect();
        let [partition, gres, cpus, memory, state, limit, _] = fields.as_slice() else { continue };
        let kind = Kind {
            partition: partition.trim_end_matches('*').to_owned(),
            gres: (*gres).to_owned(),
            cpus: cpus.trim_end_matches('+').parse().unwrap_or_default(),
            memory: memory.trim_end_matches('+').parse::<u64>().unwrap_or_default() << 20,
            limit: (*limit).to_owned(),
        };
        let (all, idle) = kinds.entry(kind).or_default();
        *all += 1;
        *idle += usize::from(*state == "idle");
    }
    let offer = |(kind, (all, idle)): (Kind, (usize, usize))| {
        let limit = queue::duration(&kind.limit).and_then(|limit| std::time::Duration::try_from(limit).ok());
        let limit = limit.map_or_else(|| "no limit".to_owned(), |limit| format!("at most {}", human::duration(limit)));
        Offer {
            name: kind.partition,
            place: place.to_owned(),
            cpus: kind.cpus,
            memory: kind.memory,
            gpus: gpus(&kind.gres),
            price_per_hour: None,
            free: format!("{idle} of {} idle, {limit}", human::count(all, "node")),
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
            "::node gpu*|gpu:a100:2(S:0)|8|64000|idle|1-00:00:00|n1",
            "::node gpu*|gpu:a100:2(S:0)|8|64000|mixed|1-00:00:00|n2",
            "::node gpu*|gpu:1g.10gb:7,shard:8|8|64000+|idle|infinite|n3",
            "::node cpu|(null)|64|256000|allocated|10:00|c1",
        ]
        .map(str::to_owned)
        .to_vec();
        let offers = read(&lines, "site");
        let told: Vec<(&str, String, &str)> = offers
            .iter()
            .map(|offer| {
                let gpus: Vec<String> = offer.gpus.iter().map(GpuOffer::describe).collect();
                (offer.name.as_str(), gpus.join(", "), offer.free.as_str())
            })
            .collect();
        assert_eq!(
            told,
            [
                ("cpu", String::new(), "0 of 1 node idle, at most 10m"),
                ("gpu", "7 x 1g.10gb, 8 x shard of a GPU".to_owned(), "1 of 1 node idle, no limit"),
                ("gpu", "2 x a100".to_owned(), "1 of 2 nodes idle, at most 24h"),
            ]
        );
        assert_eq!(offers[2].memory, 64000 << 20);
    }
}
