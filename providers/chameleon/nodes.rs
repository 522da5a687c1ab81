//! Calendar rows from the reservation service's hosts, and the built-in table that fills gaps.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::money::HourlyPrice;
use crate::provider::{CalendarRow, GpuOffer};

/// The built-in table of GPU hosts.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    as_of: String,
    sites: BTreeMap<String, Vec<Group>>,
}

/// Hosts of one type with the same GPUs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    #[serde(rename = "type")]
    kind: String,
    model: String,
    /// `unknown` if the published sources disagree.
    #[serde(deserialize_with = "count_or_unknown")]
    count: Option<u32>,
    nodes: Vec<String>,
}

/// Reads a number, or the word `unknown` as `None`.
fn count_or_unknown<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::String(word) if word == "unknown" => Ok(None),
        number => serde_json::from_value(number).map(Some).map_err(serde::de::Error::custom),
    }
}

/// A unit test parses the table, so it is valid here; an empty one would only leave gaps.
static TABLE: LazyLock<Table> = LazyLock::new(|| serde_yaml::from_str(include_str!("nodes.yaml")).unwrap_or_default());

/// A host of the built-in table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownNode {
    pub(crate) kind: &'static str,
    pub(crate) gpus: GpuOffer,
}

/// Finds a host in the built-in table.
pub(crate) fn known(site: &str, name: &str) -> Option<KnownNode> {
    let groups = TABLE.sites.iter().find(|(known, _)| known.eq_ignore_ascii_case(site))?.1;
    let group = groups.iter().find(|group| group.nodes.iter().any(|node| node == name))?;
    Some(KnownNode { kind: &group.kind, gpus: GpuOffer { model: group.model.clone(), count: group.count } })
}

/// The sites of the built-in table that have a host of this name.
pub(crate) fn sites_of(name: &str) -> Vec<&'static str> {
    let has = |groups: &[Group]| groups.iter().any(|group| group.nodes.iter().any(|node| node == name));
    TABLE.sites.iter().filter(|(_, groups)| has(groups)).map(|(site, _)| site.as_str()).collect()
}

/// Turns a host of the reservation service into a row without bookings. Any property may be absent, most are strings.
/// `project` is the user's project, for hosts reserved for certain projects.
pub(crate) fn row_of(host: &Map<String, Value>, site: &str, project: Option<&str>) -> CalendarRow {
    let id = text(host, "id").unwrap_or_default();
    let name = text(host, "node_name").or_else(|| text(host, "hypervisor_hostname")).unwrap_or_else(|| id.clone());
    let built_in = known(site, &name);
    let kind = text(host, "node_type").or_else(|| built_in.as_ref().map(|node| node.kind.to_owned()));
    let (gpus, from_table) = gpus(host, built_in);
    CalendarRow {
        place: site.to_owned(),
        kind: kind.unwrap_or_default(),
        cpus: number(host, "architecture.smt_size").or_else(|| number(host, "vcpus")).unwrap_or(0.0) as u32,
        memory: memory(host).unwrap_or(0),
        gpus,
        gpus_from: from_table.then(|| format!("gpucl's own table of {}", TABLE.as_of)),
        price_per_hour: number(host, "su_factor").and_then(HourlyPrice::service_units),
        closed: closed(host, project),
        bookings: Vec::new(),
        name,
        id,
    }
}

/// The host's GPUs, and whether they come from the built-in table.
fn gpus(host: &Map<String, Value>, built_in: Option<KnownNode>) -> (Vec<GpuOffer>, bool) {
    let says_none = flag(host, "gpu.gpu") == Some(false);
    let count = number(host, "gpu.gpu_count").map(|count| count as u32);
    let model = text(host, "gpu.gpu_model").map(|model| match text(host, "gpu.gpu_vendor") {
        Some(vendor) if !model.to_lowercase().contains(&vendor.to_lowercase()) => format!("{vendor} {model}"),
        _ => model,
    });
    if says_none || count == Some(0) {
        return (Vec::new(), false);
    }
    match (model, count, built_in) {
        (Some(model), Some(count), _) => (vec![GpuOffer { model, count: Some(count) }], false),
        (None, None, Some(node)) => (vec![node.gpus], true),
        (Some(model), None, Some(node)) => (vec![GpuOffer { model, ..node.gpus }], true),
        (None, Some(count), Some(node)) => (vec![GpuOffer { count: Some(count), ..node.gpus }], true),
        // The service reports a model, or that there are GPUs, but no count.
        (Some(model), None, None) => (vec![GpuOffer { model, count: None }], false),
        (None, Some(count), None) => (vec![GpuOffer { model: "GPU".to_owned(), count: Some(count) }], false),
        (None, None, None) if flag(host, "gpu.gpu") == Some(true) => {
            (vec![GpuOffer { model: "GPU".to_owned(), count: None }], false)
        }
        (None, None, None) => (Vec::new(), false),
    }
}

/// The reason why a host cannot be reserved, if any.
fn closed(host: &Map<String, Value>, project: Option<&str>) -> Option<String> {
    let reason = text(host, "restricted_reason");
    if flag(host, "reservable") == Some(false) {
        return Some(reason.map_or_else(|| "not reservable".to_owned(), |reason| format!("not reservable: {reason}")));
    }
    if flag(host, "disabled") == Some(true) {
        return Some("disabled".to_owned());
    }
    let allowed = text(host, "authorized_projects")?;
    let mut names = allowed.split(|letter: char| !(letter.is_alphanumeric() || "-_".contains(letter)));
    // Without a known project this cannot be decided here; the service decides.
    let project = project?;
    if names.any(|name| name == project) {
        return None;
    }
    Some(format!("reserved for other projects{}", reason.map(|reason| format!(": {reason}")).unwrap_or_default()))
}

fn memory(host: &Map<String, Value>) -> Option<u64> {
    if let Some(bytes) = number(host, "main_memory.ram_size") {
        return Some(bytes as u64);
    }
    if let Some(size) = text(host, "main_memory.humanized_ram_size") {
        let (amount, unit) = size.split_at(size.find(|letter: char| letter.is_alphabetic()).unwrap_or(size.len()));
        let scale: u64 = match unit.chars().next().map(|letter| letter.to_ascii_uppercase()) {
            Some('T') => 1 << 40,
            Some('G') => 1 << 30,
            Some('M') => 1 << 20,
            _ => 0,
        };
        if let Some(amount) = amount.trim().parse::<f64>().ok().filter(|_| scale > 0) {
            return Some((amount * scale as f64) as u64);
        }
    }
    number(host, "memory_mb").map(|megabytes| (megabytes as u64) << 20)
}

/// A property as text; empty values, `none` and `null` count as absent.
fn text(host: &Map<String, Value>, name: &str) -> Option<String> {
    let text = match host.get(name)? {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        Value::Bool(flag) => flag.to_string(),
        Value::Array(parts) => parts.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(","),
        Value::Null | Value::Object(_) => return None,
    };
    let nothing = text.is_empty() || ["none", "null", "[]"].iter().any(|word| text.eq_ignore_ascii_case(word));
    (!nothing).then_some(text)
}

fn number(host: &Map<String, Value>, name: &str) -> Option<f64> {
    text(host, name)?.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0)
}

fn flag(host: &Map<String, Value>, name: &str) -> Option<bool> {
    match text(host, name)?.to_lowercase().as_str() {
        "true" | "1" | "yes" => Some(true),
        "false" | "0" | "no" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(host: Value) -> CalendarRow {
        row_of(host.as_object().unwrap(), "CHI@TACC", Some("p1"))
    }

    #[test]
    fn the_table_can_be_read() {
        let table: Table = serde_yaml::from_str(include_str!("nodes.yaml")).unwrap();
        let nodes: Vec<&String> = table.sites.values().flatten().flat_map(|group| &group.nodes).collect();
        assert_eq!(nodes.len(), 101);
        assert_eq!(known("CHI@TACC", "liqid01").unwrap().gpus.count, Some(2));
        assert_eq!(known("chi@uc", "307G3Q3").unwrap().gpus.count, Some(4));
        assert_eq!(known("CHI@TACC", "c03-04").unwrap().gpus.count, None, "the published sources disagree");
        assert_eq!(sites_of("liqid01"), ["CHI@TACC"]);
        assert!(sites_of("liqid99").is_empty());
    }

    #[test]
    fn the_service_takes_precedence_over_the_table() {
        let row = row(json!({
            "id": "2", "vcpus": 2, "memory_mb": 8192, "reservable": true, "node_name": "liqid01",
            "node_type": "compute_liqid", "gpu.gpu": "True", "gpu.gpu_count": "1", "gpu.gpu_model": "A100",
            "gpu.gpu_vendor": "NVIDIA", "architecture.smt_size": "64", "main_memory.humanized_ram_size": "256 GiB",
            "su_factor": "4.0", "hypervisor_hostname": "d4a46dc6",
        }));
        assert_eq!((row.name.as_str(), row.id.as_str(), row.cpus, row.memory), ("liqid01", "2", 64, 256 << 30));
        assert_eq!(row.gpus, [GpuOffer { model: "NVIDIA A100".to_owned(), count: Some(1) }]);
        assert_eq!((row.gpus_from, row.price_per_hour, row.closed), (None, HourlyPrice::service_units(4.0), None));
    }

    #[test]
    fn gaps_are_filled_and_marked() {
        let filled = row(json!({ "id": 7, "node_name": "liqid01", "gpu.gpu_count": null }));
        assert_eq!((filled.kind.as_str(), filled.gpus[0].count), ("compute_liqid", Some(2)));
        assert_eq!(filled.gpus_from.as_deref(), Some("gpucl's own table of 2026-06"));
        let counted = row(json!({ "id": 7, "node_name": "liqid01", "gpu.gpu_count": "1" }));
        assert_eq!((counted.gpus[0].count, counted.gpus[0].model.as_str()), (Some(1), "NVIDIA A100 PCIe 40GB"));
        // The site's own data takes precedence over an unknown count in the table.
        let site = row(json!({ "id": 8, "node_name": "c03-04", "gpu.gpu_count": "1", "gpu.gpu_model": "MI100" }));
        assert_eq!(site.gpus, [GpuOffer { model: "MI100".to_owned(), count: Some(1) }]);
        let unknown = row(json!({ "id": 8, "node_name": "c03-04" }));
        assert_eq!(unknown.gpus, [GpuOffer { model: "AMD Instinct MI100".to_owned(), count: None }]);
        let none = row(json!({ "id": 7, "node_name": "liqid01", "gpu.gpu": "False" }));
        assert_eq!((none.gpus.len(), none.gpus_from), (0, None));
        let bare = row(json!({ "id": "9", "hypervisor_hostname": "0d1c", "vcpus": 48, "memory_mb": 1024 }));
        assert_eq!((bare.name.as_str(), bare.kind.as_str(), bare.cpus, bare.memory), ("0d1c", "", 48, 1 << 30));
        assert_eq!(bare.price_per_hour, None);
        assert_eq!(row(json!({})).name, "");
    }

    #[test]
    fn hosts_that_cannot_be_reserved_say_why() {
        let why = |host: Value| row(host).closed;
        assert_eq!(why(json!({ "reservable": false })).as_deref(), Some("not reservable"));
        let repair = json!({ "reservable": "False", "restricted_reason": "in repair" });
        assert_eq!(why(repair).as_deref(), Some("not reservable: in repair"));
        let others = json!({ "authorized_projects": "p7, p8", "restricted_reason": "early access" });
        assert_eq!(why(others).as_deref(), Some("reserved for other projects: early access"));
        assert_eq!(why(json!({ "authorized_projects": "['p7', 'p1']" })), None);
        assert_eq!(why(json!({ "authorized_projects": "None" })), None);
    }
}
