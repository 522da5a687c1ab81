//! Parses the output of AMD's tools. The format varies by version: keys change case, and lines may precede the JSON.

use serde_json::Value;

use super::Facts;

/// Takes the output of `rocm-smi --json` or `amd-smi static --json`, on one line.
pub(super) fn take(facts: &mut Facts, text: &str) {
    // Warnings may come first; output without JSON is ignored.
    let Some(value) =
        text.match_indices(['{', '[']).find_map(|(at, _)| serde_json::from_str::<Value>(&text[at..]).ok())
    else {
        return;
    };
    let cards: Vec<&Value> = match &value {
        Value::Array(cards) => cards.iter().collect(),
        Value::Object(map) => match map.get("gpu_data") {
            Some(Value::Array(cards)) => cards.iter().collect(),
            _ => map.iter().filter(|(key, _)| key.starts_with("card")).map(|(_, card)| card).collect(),
        },
        _ => return,
    };
    for card in cards {
        take_card(facts, card);
    }
}

fn take_card(facts: &mut Facts, card: &Value) {
    let pci = find(card, &["pci bus", "bdf"]).map(|bus| bus.to_ascii_lowercase());
    let unique = find(card, &["unique id", "asic_serial"]).map(|id| digits(&id));
    let name = find(card, &["market_name"])
        .or_else(|| find(card, &["card series"]))
        .or_else(|| find(card, &["device name"]))
        .or_else(|| find(card, &["card model"]))
        .or_else(|| find(card, &["card sku"]))
        // Without a name, the tool shows a number.
        .filter(|name| !name.starts_with("0x"));
    let found = facts.gpus.iter_mut().find(|gpu| match (&pci, &unique, &gpu.unique_id) {
        (Some(pci), ..) => gpu.pci == *pci,
        (None, Some(unique), Some(own)) => digits(own) == *unique,
        _ => false,
    });
    if let Some(gpu) = found {
        gpu.name = name.or(gpu.name.take());
        if gpu.unique_id.is_none() {
            gpu.unique_id = unique.map(|unique| format!("{unique:0>16}"));
        }
    }
}

/// The value of the first of these keys, ignoring case, here or below.
fn find(card: &Value, keys: &[&str]) -> Option<String> {
    let map = card.as_object()?;
    let own = map.iter().find(|(key, _)| keys.contains(&key.to_ascii_lowercase().as_str())).and_then(|(_, value)| {
        // Newer versions wrap a value with its unit.
        let value = value.get("value").unwrap_or(value);
        value.as_str().map(|text| text.trim().to_owned())
    });
    own.filter(|text| !matches!(text.as_str(), "" | "N/A"))
        .or_else(|| map.values().filter(|value| value.is_object()).find_map(|value| find(value, keys)))
}

/// Hexadecimal digits without `0x` and leading zeros, which only some versions print.
fn digits(id: &str) -> String {
    let id = id.trim().to_ascii_lowercase();
    id.trim_start_matches("0x").trim_start_matches('0').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn describe(text: &str) -> Vec<(Option<String>, Option<String>)> {
        let mut facts = Facts::default();
        facts.take("gpu", "0000:c3:00.0 0x1002 0x738c amdgpu renderD128 79ccd55167a2124a");
        facts.take("gpu", "0000:c4:00.0 0x1002 0x738c amdgpu renderD129 02f048617326b1ea");
        facts.take("amd", text);
        facts.gpus.into_iter().map(|gpu| (gpu.name, gpu.unique_id)).collect()
    }

    fn names(text: &str) -> Vec<String> {
        describe(text).into_iter().map(|(name, _)| name.unwrap_or_default()).collect()
    }

    #[test]
    fn names_are_found_in_the_forms_of_many_versions() {
        // Old: `Card series`, GPU ID; no bus, so matched by the id, which is not padded.
        let old = r#"{"card0": {"GPU ID": "0x738c", "Unique ID": "0x79ccd55167a2124a", "Card series": "Arcturus GL-XL [Instinct MI100]"},
            "card1": {"GPU ID": "0x66a1", "Unique ID": "0x2f048617326b1ea", "Card series": "Vega 20", "Card model": "0x834"}, "system": {"Driver version": "5.19"}}"#;
        assert_eq!(names(old), ["Arcturus GL-XL [Instinct MI100]", "Vega 20"]);
        // Newer: `Card Series`, `Device Name`, the bus in upper case, no id, a warning first.
        let new = r#"WARNING: AMD GPU device(s) is/are in a low-power state. {"card0": {"Device Name": "MI100", "Unique ID": "N/A", "Card Series": "AMD Instinct MI100", "PCI Bus": "0000:C3:00.0", "GUID": "1"},
            "card1": {"Device Name": "Navi 22", "Card Series": "N/A", "PCI Bus": "0000:C4:00.0"}}"#;
        assert_eq!(names(new), ["AMD Instinct MI100", "Navi 22"]);
        // amd-smi: an array, or wrapped; plain values, or with a unit.
        let array = r#"[{"gpu": 0, "asic": {"market_name": "AMD Instinct MI300X", "asic_serial": "0x79CCD55167A2124A"}, "bus": {"bdf": "0000:c3:00.0"}}]"#;
        assert_eq!(names(array), ["AMD Instinct MI300X", ""]);
        let wrapped = r#"{"gpu_data": [{"gpu": 1, "asic": {"market_name": {"value": "Instinct", "unit": ""}}, "bus": {"bdf": "0000:C4:00.0"}}]}"#;
        assert_eq!(names(wrapped), ["", "Instinct"]);
    }

    #[test]
    fn output_without_usable_json_is_ignored() {
        for text in [
            "",
            "ERROR:root:Driver not initialized (amdgpu not found in modules)",
            "Unable to find librocm_smi64.so.1 {",
            "[\u{1b}[33mPlease refer to",
            r#"{"card0": {"Card Series": "0x0c34", "PCI Bus": "0000:C3:00.0"}}"#,
            r#"{"card0": {"Card Series": "lost", "Unique ID": "N/A"}, "card1": "odd"}"#,
        ] {
            assert_eq!(names(text), ["", ""], "{text}");
        }
    }
}
