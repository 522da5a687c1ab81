//! Chooses types and a region for the hosts. Pure.

use super::api::{InstanceType, TypeItem};
use super::config::{GpuNeed, HostSettings};
use crate::money::HourlyPrice;
use crate::provider::GpuOffer;

/// Regions without firewall rulesets.
pub(super) const WITHOUT_RULES: [&str; 1] = ["us-south-1"];

/// A type's GPU model and memory, parsed from `A100 (40 GB SXM4)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gpu {
    /// `A100`.
    pub(super) model: String,
    /// The memory of each GPU, in GB as Lambda writes it.
    pub(super) memory: Option<u32>,
}

/// Parses the GPU description of a type.
pub(super) fn gpu_of(kind: &InstanceType) -> Gpu {
    let (model, rest) = kind.gpu_description.split_once('(').unwrap_or((&kind.gpu_description, ""));
    let words: Vec<&str> = rest.split_whitespace().collect();
    let memory =
        words.windows(2).find(|pair| pair[1].trim_end_matches(')') == "GB").and_then(|pair| pair[0].parse().ok());
    Gpu { model: model.trim().to_owned(), memory }
}

/// The GPUs of a type, for an offer.
pub(super) fn gpu_offer(kind: &InstanceType) -> Vec<GpuOffer> {
    let model = match kind.gpu_description.trim() {
        "" => kind.name.clone(),
        text => text.to_owned(),
    };
    if kind.specs.gpus == 0 { Vec::new() } else { vec![GpuOffer { model, count: Some(kind.specs.gpus) }] }
}

/// Whether a type has an arm64 processor.
pub(super) fn is_arm(kind: &InstanceType) -> bool {
    // The API does not report it; GH200 and its successor GB200 have Grace, an arm64 processor.
    let name = kind.name.to_ascii_lowercase();
    name.split('_').any(|part| part.starts_with("gh") || part.starts_with("gb"))
}

/// Whether a type meets this need.
fn does(kind: &InstanceType, need: &GpuNeed) -> bool {
    let gpu = gpu_of(kind);
    let plain =
        |text: &str| -> String { text.to_ascii_lowercase().chars().filter(char::is_ascii_alphanumeric).collect() };
    let is_model = |wanted: &str| {
        let wanted = plain(wanted);
        plain(&gpu.model) == wanted || kind.name.split('_').any(|part| part == wanted)
    };
    kind.specs.gpus >= need.count.unwrap_or(1)
        && need.model.as_deref().is_none_or(is_model)
        && need.memory_gib.is_none_or(|least| gpu.memory.is_some_and(|memory| memory >= least))
        // An arm64 type is chosen only by its model name.
        && (!is_arm(kind) || need.model.is_some())
}

/// The request for a choice.
pub(super) struct Ask<'a> {
    /// The entries of the hosts to launch.
    pub(super) hosts: Vec<HostSettings>,
    pub(super) types: &'a [String],
    /// The acceptable regions, in order of preference; empty means any.
    pub(super) regions: Vec<String>,
    /// The maximum price of one host.
    pub(super) most: Option<HourlyPrice>,
    /// The hosts need firewall rules of their own.
    pub(super) rules: bool,
}

/// The chosen region, and a type for each host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) region: String,
    pub(super) types: Vec<String>,
}

/// Why there is no choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum None {
    /// A named type does not exist.
    UnknownType { name: String, known: Vec<String> },
    /// No type has such GPUs.
    NothingLikeThat { models: Vec<String> },
    /// All matching types exceed the maximum price.
    TooDear { cheapest: String, price: HourlyPrice },
    /// All requested regions lack firewall rulesets.
    NoRules { region: String },
    /// No capacity now; the acceptable types and regions.
    NoCapacity { accepted: Vec<(String, HourlyPrice)>, regions: Vec<String> },
}

/// The acceptable types for a host, in order of preference.
pub(super) fn types_for<'a>(
    ask: &Ask<'_>,
    host: &HostSettings,
    items: &'a [TypeItem],
) -> Result<Vec<&'a InstanceType>, None> {
    let find = |name: &String| {
        items.iter().map(|item| &item.instance_type).find(|kind| kind.name == *name).ok_or_else(|| None::UnknownType {
            name: name.clone(),
            known: items.iter().map(|item| item.instance_type.name.clone()).collect(),
        })
    };
    let mut fitting: Vec<&InstanceType> = match (&host.kind, &host.gpus) {
        (Some(name), _) => vec![find(name)?],
        (_, need) if !ask.types.is_empty() => {
            let named = ask.types.iter().map(find).collect::<Result<Vec<_>, _>>()?;
            named.into_iter().filter(|kind| need.as_ref().is_none_or(|need| does(kind, need))).collect()
        }
        (_, need) => {
            let need = need.clone().unwrap_or_default();
            let mut all: Vec<&InstanceType> =
                items.iter().map(|item| &item.instance_type).filter(|kind| does(kind, &need)).collect();
            all.sort_by_key(|kind| (kind.price_cents_per_hour, kind.name.clone()));
            all
        }
    };
    if fitting.is_empty() {
        let mut models: Vec<String> = items.iter().map(|item| gpu_of(&item.instance_type).model).collect();
        models.retain(|model| !model.is_empty() && model != "N/A");
        models.sort();
        models.dedup();
        return Err(None::NothingLikeThat { models });
    }
    if let Some(most) = ask.most {
        let cheapest =
            fitting.iter().min_by_key(|kind| kind.price_cents_per_hour).map(|kind| (kind.name.clone(), kind.price()));
        fitting.retain(|kind| kind.price() <= most);
        if let (true, Some((cheapest, price))) = (fitting.is_empty(), cheapest) {
            return Err(None::TooDear { cheapest, price });
        }
    }
    Ok(fitting)
}

/// Chooses the best region and a type for each host: by the order of types, then of regions, then by price.
pub(super) fn choose(
    ask: &Ask<'_>,
    items: &[TypeItem],
    is_refused: impl Fn(&str, &str) -> bool,
) -> Result<Choice, None> {
    let lists = ask.hosts.iter().map(|host| types_for(ask, host, items)).collect::<Result<Vec<_>, _>>()?;
    let has = |kind: &InstanceType, region: &str| {
        let item = items.iter().find(|item| item.instance_type.name == kind.name);
        item.is_some_and(|item| item.regions_with_capacity_available.iter().any(|one| one.name == region))
            && !is_refused(&kind.name, region)
    };
    let mut regions: Vec<String> = ask.regions.clone();
    if regions.is_empty() {
        regions =
            items.iter().flat_map(|item| &item.regions_with_capacity_available).map(|one| one.name.clone()).collect();
        regions.sort();
        regions.dedup();
    }
    if ask.rules {
        let before = regions.clone();
        regions.retain(|region| !WITHOUT_RULES.contains(&region.as_str()));
        if let (true, Some(region)) = (regions.is_empty() && !ask.regions.is_empty(), before.first()) {
            return Err(None::NoRules { region: region.clone() });
        }
    }
    let mut best: Option<((usize, usize, u64), Choice)> = Option::None;
    for (place, region) in regions.iter().enumerate() {
        let (mut rank, mut price, mut types) = (0, 0, Vec::new());
        for list in &lists {
            let Some((at, kind)) = list.iter().enumerate().find(|(_, kind)| has(kind, region)) else { break };
            rank += at;
            // An overflowing sum compares as the maximum.
            price = u64::saturating_add(price, kind.price_cents_per_hour);
            types.push(kind.name.clone());
        }
        let worth = (rank, place, price);
        if types.len() == lists.len() && best.as_ref().is_none_or(|(other, _)| worth < *other) {
            best = Some((worth, Choice { region: region.clone(), types }));
        }
    }
    best.map(|(_, choice)| choice).ok_or_else(|| {
        let mut accepted: Vec<(String, HourlyPrice)> = Vec::new();
        for kind in lists.iter().flatten() {
            if accepted.iter().all(|(name, _)| *name != kind.name) {
                accepted.push((kind.name.clone(), kind.price()));
            }
        }
        None::NoCapacity { accepted, regions: ask.regions.clone() }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn item(name: &str, gpu: &str, gpus: u32, cents: u64, regions: &[&str]) -> TypeItem {
        let regions: Vec<_> = regions.iter().map(|name| json!({"name": name, "description": ""})).collect();
        serde_json::from_value(json!({
            "instance_type": {
                "name": name, "description": "", "gpu_description": gpu, "price_cents_per_hour": cents,
                "specs": {"vcpus": 30, "memory_gib": 200, "storage_gib": 1400, "gpus": gpus},
            },
            "regions_with_capacity_available": regions,
        }))
        .unwrap()
    }

    fn items() -> Vec<TypeItem> {
        vec![
            item("gpu_1x_a10", "A10 (24 GB PCIe)", 1, 129, &["us-east-1", "us-west-1"]),
            item("gpu_1x_a100_sxm4", "A100 (40 GB SXM4)", 1, 199, &["us-west-1"]),
            item("gpu_8x_a100_80gb_sxm4", "A100 (80 GB SXM4)", 8, 2232, &["us-south-1", "us-west-2"]),
            item("gpu_8x_a100", "A100 (40 GB SXM4)", 8, 1592, &["us-south-1"]),
            item("gpu_1x_gh200", "GH200 (96 GB)", 1, 99, &["us-east-1"]),
            item("gpu_1x_rtx6000", "RTX 6000 (24 GB)", 1, 69, &[]),
            item("cpu_4x_general", "N/A", 0, 20, &["us-east-1"]),
        ]
    }

    fn ask(hosts: Vec<serde_json::Value>) -> Ask<'static> {
        let hosts = hosts.into_iter().map(|host| serde_json::from_value(host).unwrap()).collect();
        Ask { hosts, types: &[], regions: Vec::new(), most: Option::None, rules: false }
    }

    fn chosen(ask: &Ask<'_>) -> Result<(String, Vec<String>), None> {
        choose(ask, &items(), |_, _| false).map(|choice| (choice.region, choice.types))
    }

    fn is(region: &str, types: &[&str]) -> Result<(String, Vec<String>), None> {
        Ok((region.to_owned(), types.iter().map(|name| (*name).to_owned()).collect()))
    }

    #[test]
    fn a_need_gets_the_cheapest_match_and_arm_only_by_name() {
        assert_eq!(chosen(&ask(vec![json!({"gpus": {}})])), is("us-east-1", &["gpu_1x_a10"]));
        assert_eq!(chosen(&ask(vec![json!({"gpus": {"model": "A100"}})])), is("us-west-1", &["gpu_1x_a100_sxm4"]));
        let big = json!({"gpus": {"model": "a100", "count": 8, "memory_gib": 80}});
        assert_eq!(chosen(&ask(vec![big])), is("us-south-1", &["gpu_8x_a100_80gb_sxm4"]));
        assert_eq!(chosen(&ask(vec![json!({"gpus": {"model": "gh200"}})])), is("us-east-1", &["gpu_1x_gh200"]));
        assert!(matches!(chosen(&ask(vec![json!({"gpus": {"model": "rtx6000"}})])), Err(None::NoCapacity { .. })));
    }

    #[test]
    fn the_order_of_types_counts_before_that_of_regions() {
        let types = ["gpu_1x_a100_sxm4".to_owned(), "gpu_1x_a10".to_owned()];
        let mut ask = ask(vec![json!({})]);
        ask.types = &types;
        ask.regions = vec!["us-east-1".to_owned(), "us-west-1".to_owned()];
        assert_eq!(chosen(&ask), is("us-west-1", &["gpu_1x_a100_sxm4"]));
        // A recently refused type is skipped.
        let refused = |kind: &str, _: &str| kind == "gpu_1x_a100_sxm4";
        let second = choose(&ask, &items(), refused).unwrap();
        assert_eq!((second.region.as_str(), second.types[0].as_str()), ("us-east-1", "gpu_1x_a10"));
    }

    #[test]
    fn all_hosts_are_in_one_region() {
        let two = ask(vec![json!({"type": "gpu_1x_a10"}), json!({"type": "gpu_1x_a100_sxm4"})]);
        assert_eq!(chosen(&two), is("us-west-1", &["gpu_1x_a10", "gpu_1x_a100_sxm4"]));
        let apart = ask(vec![json!({"type": "gpu_1x_a10"}), json!({"type": "gpu_8x_a100"})]);
        assert!(matches!(chosen(&apart), Err(None::NoCapacity { .. })));
    }

    #[test]
    fn several_hosts_go_to_a_region_with_firewall_rules() {
        let mut two = ask(vec![json!({"type": "gpu_8x_a100_80gb_sxm4"}); 2]);
        two.rules = true;
        assert_eq!(chosen(&two).unwrap().0, "us-west-2");
        two.regions = vec!["us-south-1".to_owned()];
        assert_eq!(chosen(&two), Err(None::NoRules { region: "us-south-1".to_owned() }));
    }

    #[test]
    fn refusals_list_the_alternatives() {
        let mut one = ask(vec![json!({"gpus": {"model": "h100"}})]);
        let Err(None::NothingLikeThat { models }) = chosen(&one) else { panic!("there is no h100") };
        assert_eq!(models, ["A10", "A100", "GH200", "RTX 6000"]);
        one.hosts = vec![serde_json::from_value(json!({"type": "gpu_1x_a100"})).unwrap()];
        assert!(matches!(chosen(&one), Err(None::UnknownType { .. })));
        one.hosts = vec![serde_json::from_value(json!({"type": "gpu_1x_a10"})).unwrap()];
        one.most = Some(HourlyPrice::cents(100));
        assert_eq!(
            chosen(&one),
            Err(None::TooDear { cheapest: "gpu_1x_a10".to_owned(), price: HourlyPrice::cents(129) })
        );
    }
}
