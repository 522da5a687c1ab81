//! Whether the nodes of a cluster have what a job asks for.

use std::collections::{BTreeMap, BTreeSet};

use super::nodes::Node;
use super::situation::{Amounts, Demand, Growing, Situation};
use crate::util::human;

/// How far the nodes have what is asked for.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Fit {
    /// Some nodes have it free.
    Free,
    /// Some nodes have it, in use.
    Busy,
    /// Nodes that Ray's autoscaler may add have it.
    Coming,
    /// It does not fit on any node, for this reason.
    Never(String),
    /// The nodes are not known.
    Unknown,
}

/// The label with the name of a node's group (ray 2.60.0, `RAY_NODE_GROUP_KEY`).
const GROUP_LABEL: &str = "ray.io/node-group";
/// How many nodes that a group may still get are looked at, at most.
const MOST_COMING: usize = 64;

/// Judges whether the living nodes can hold the demand, or those that may come.
pub(super) fn fit(demand: &Demand, situation: &Situation) -> Fit {
    let alive: Vec<&Node> = situation.nodes.iter().filter(|node| node.alive).collect();
    if alive.is_empty() {
        return Fit::Unknown;
    }
    let coming = coming(situation);
    let now = lacks(demand, &alive);
    let later = lacks(demand, &alive.iter().copied().chain(&coming).collect::<Vec<_>>());
    if let Some(why) = later {
        return Fit::Never(why);
    }
    let alone = lacks(demand, &coming.iter().collect::<Vec<_>>()).is_none();
    if now.is_some() {
        return Fit::Coming;
    }
    let nodes = alive.into_iter().filter(|node| has_labels(node, &demand.labels));
    let free: Vec<Amounts> = nodes.map(|node| free(node, situation)).collect();
    let each = demand.bundles.iter().all(|bundle| free.iter().any(|free| holds(free, bundle)));
    let whole = sum(demand.bundles.iter());
    match each && short_of(&whole, &sum(free.iter())).is_none() {
        true => Fit::Free,
        false if alone => Fit::Coming,
        false => Fit::Busy,
    }
}

/// The nodes that Ray's autoscaler may add.
fn coming(situation: &Situation) -> Vec<Node> {
    let of = |group: &Growing| {
        let is_of = |node: &&Node| node.alive && node.labels.get(GROUP_LABEL) == Some(&group.name);
        let there = situation.nodes.iter().filter(is_of).count();
        let more = (group.max as usize).saturating_sub(there).min(MOST_COMING);
        let node = Node {
            node_id: String::new(),
            address: String::new(),
            is_head: false,
            alive: true,
            state: String::new(),
            resources: group.node.clone(),
            labels: group.labels.clone(),
            start_time: None,
        };
        std::iter::repeat_n(node, more).collect::<Vec<_>>()
    };
    situation.growing.iter().flat_map(of).collect()
}

/// Why these nodes do not hold a demand, even if nothing else runs; `None` if they do.
fn lacks(demand: &Demand, nodes: &[&Node]) -> Option<String> {
    let nodes: Vec<&Node> = nodes.iter().copied().filter(|node| has_labels(node, &demand.labels)).collect();
    if nodes.is_empty() {
        let labels: Vec<String> = demand.labels.iter().map(|(name, selector)| format!("{name}={selector}")).collect();
        return Some(format!("wants the label {}, which no node has", labels.join(", ")));
    }
    if let Some(bundle) = demand.bundles.iter().find(|bundle| !nodes.iter().any(|node| holds(&node.resources, bundle)))
    {
        return Some(lacking(bundle, &nodes));
    }
    let whole = sum(demand.bundles.iter());
    let total = sum(nodes.iter().map(|node| &node.resources));
    let (name, asked, has) = short_of(&whole, &total)?;
    Some(format!("asks for {} in all; the cluster has {}", amount(name, asked), plain(name, has)))
}

/// The amounts of a demand as text: `1 CPU and 2 GPUs`.
pub(super) fn amounts(demand: &Demand) -> String {
    let texts: BTreeSet<String> = demand.bundles.iter().map(bundle_text).filter(|text| !text.is_empty()).collect();
    let text = texts.into_iter().collect::<Vec<_>>().join("; ");
    match demand.bundles.len() {
        0 | 1 => text,
        number => format!("{number} times {text}"),
    }
}

fn bundle_text(bundle: &Amounts) -> String {
    let parts: Vec<String> = shown(bundle).map(|(name, value)| amount(name, value)).collect();
    parts.join(" and ")
}

fn shown(bundle: &Amounts) -> impl Iterator<Item = (&str, f64)> {
    bundle.iter().filter(|(_, value)| **value > 0.0).map(|(name, value)| (name.as_str(), *value))
}

/// Why no node holds a bundle.
fn lacking(bundle: &Amounts, nodes: &[&Node]) -> String {
    let most = nodes.iter().fold(Amounts::new(), |mut most, node| {
        for (name, value) in &node.resources {
            let known = most.entry(name.clone()).or_default();
            *known = known.max(*value);
        }
        most
    });
    match short_of(bundle, &most) {
        Some((name, asked, has)) if has <= 0.0 => format!("asks for {}; no node has any", amount(name, asked)),
        Some((name, asked, has)) => {
            format!("asks for {} on one node; the largest has {}", amount(name, asked), plain(name, has))
        }
        None => format!("asks for {} on one node; no node has all of it", bundle_text(bundle)),
    }
}

/// The first resource of which there is too little: GPUs before all others, since they are asked for most.
fn short_of<'a>(asked: &'a Amounts, there: &Amounts) -> Option<(&'a str, f64, f64)> {
    let mut short: Vec<(&str, f64, f64)> = shown(asked)
        .map(|(name, value)| (name, value, there.get(name).copied().unwrap_or_default()))
        .filter(|(_, asked, has)| asked > has)
        .collect();
    short.sort_by_key(|(name, ..)| *name != "GPU");
    short.first().copied()
}

fn holds(there: &Amounts, bundle: &Amounts) -> bool {
    short_of(bundle, there).is_none()
}

fn sum<'a>(all: impl Iterator<Item = &'a Amounts>) -> Amounts {
    let mut whole = Amounts::new();
    for (name, value) in all.flatten() {
        *whole.entry(name.clone()).or_default() += value;
    }
    whole
}

fn free(node: &Node, situation: &Situation) -> Amounts {
    let used = situation.used.get(&node.node_id);
    let left = |name: &str, total: f64| total - used.and_then(|used| used.get(name)).copied().unwrap_or_default();
    node.resources.iter().map(|(name, total)| (name.clone(), left(name, *total))).collect()
}

/// An amount with its unit: `2 GPUs`, `16.0 GiB of memory`, ``3 `disk` ``.
fn amount(name: &str, value: f64) -> String {
    match name {
        "memory" | "object_store_memory" => format!("{} of {}", plain(name, value), name.replace('_', " ")),
        "CPU" | "GPU" if value > 1.0 => format!("{} {name}s", plain(name, value)),
        "CPU" | "GPU" => format!("{} {name}", plain(name, value)),
        _ => format!("{} `{name}`", plain(name, value)),
    }
}

fn plain(name: &str, value: f64) -> String {
    if !name.ends_with("memory") {
        return format!("{value}");
    }
    human::bytes(value.max(0.0) as u64)
}

/// Whether a node's labels match the selectors: `a`, `!a`, `in(a, b)`, `!in(a, b)`.
fn has_labels(node: &Node, selectors: &BTreeMap<String, String>) -> bool {
    selectors.iter().all(|(name, selector)| {
        let (wanted, selector) = match selector.strip_prefix('!') {
            Some(rest) => (false, rest),
            None => (true, selector.as_str()),
        };
        let several = selector.strip_prefix("in(").and_then(|rest| rest.strip_suffix(')'));
        let label = node.labels.get(name).map(String::as_str);
        let among = match several {
            Some(list) => list.split(',').any(|one| label == Some(one.trim())),
            None => label == Some(selector),
        };
        among == wanted
    })
}
