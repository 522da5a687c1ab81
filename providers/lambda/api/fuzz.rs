//! Fuzzes Lambda's responses: each is parsed, or refused as malformed; then a choice is made from it.

use reqwest::{Method, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::super::choice::{Ask, choose, gpu_of};
use super::super::resolve::offer;
use super::call::{data_of, read_success};
use super::failure::classify;
use super::form::{FileSystem, Image, Instance, Ruleset, SshKey, TypeItem};
use crate::error::Error;
use gpucl_fuzz::{Target, demand};

fn seeds() -> Vec<Value> {
    let kind = json!({"name": "gpu_1x_a10", "description": "1x A10", "gpu_description": "A10 (24 GB PCIe)", "price_cents_per_hour": 129,
        "specs": {"vcpus": 30, "memory_gib": 200, "storage_gib": 1400, "gpus": 1}});
    let region = json!({"name": "us-east-1", "description": "Virginia, USA"});
    vec![
        json!({"data": {"gpu_1x_a10": {"instance_type": kind, "regions_with_capacity_available": [region]},
            "gpu_8x": {"instance_type": {"name": "gpu_8x_h100", "price_cents_per_hour": 3192, "specs": {"gpus": 8}},
            "regions_with_capacity_available": []}}}),
        json!({"data": [{"id": "i", "name": "n", "ip": "1.2.3.4", "private_ip": "10.0.0.2", "status": "active", "ssh_key_names": ["k"],
            "region": region, "instance_type": kind, "actions": {"terminate": {"available": false, "reason_code": "vm-x"}},
            "tags": [{"key": "gpucl", "value": "gpucl-abcd1234-demo-host0"}]}]}),
        json!({"data": [{"id": "k", "name": "n", "public_key": "ssh-ed25519 AAAA c", "region": region, "family": "f", "architecture": "x86_64",
            "rules": [{"protocol": "tcp", "port_range": [22, 22], "source_network": "0.0.0.0/0", "description": "d"}]}]}),
        json!({"error": {"code": "instance-operations/launch/insufficient-capacity", "message": "Not enough", "suggestion": "Wait."}}),
        json!({"error": {"code": "global/invalid-parameters", "message": "No.", "suggestion": "Do."}}),
    ]
}

fn all<T: DeserializeOwned>(data: &Value) -> Vec<T> {
    data_of(data.clone(), &Method::GET, "list").unwrap_or_default()
}

#[test]
fn fuzz_answers_of_lambda() {
    let words = ["global/", "provider/", "us-east-1", "(80 GB SXM4)", "GB", "gpu_1x_gh200", "<!DOCTYPE html>"];
    Target::of_json("lambda", &seeds()).with_words(&words).with_inputs(600, 80).run(|input| {
        for status in [400, 401, 403, 404, 409, 429, 500, 502] {
            let failure = classify("launch it", &Method::POST, StatusCode::from_u16(status).unwrap(), input);
            let length: usize = Error::from(failure).causes().iter().map(String::len).sum();
            demand(length < 20_000, || format!("an error of {length} bytes"))?;
        }
        let data = match read_success(input) {
            Ok(data) => data,
            Err(why) => {
                let letters = why.chars().count();
                return demand(letters < 400, || format!("a reason of {letters} letters"));
            }
        };
        for one in all::<Instance>(&data) {
            let _ =
                (one.tag("gpucl"), one.address(), one.private_address(), one.status.to_string(), format!("{one:?}"));
        }
        for key in all::<SshKey>(&data) {
            let _ = key.is("ssh-ed25519 AAAA");
        }
        drop((all::<Image>(&data), all::<FileSystem>(&data), all::<Ruleset>(&data)));
        let listed = data.as_object().map(|map| Value::Array(map.values().cloned().collect())).unwrap_or_default();
        let items: Vec<TypeItem> = all(&listed);
        for item in &items {
            let offer = offer(&item.instance_type, "us-east-1", "now");
            let _ = (gpu_of(&item.instance_type), offer.price_per_hour.map(|price| price.to_string()));
        }
        for (hosts, regions) in [(1, vec![]), (3, vec!["us-east-1".to_owned()])] {
            let ask = Ask { hosts: vec![Default::default(); hosts], types: &[], regions, most: None, rules: hosts > 1 };
            if let Ok(choice) = choose(&ask, &items, |_, _| false) {
                demand(choice.types.len() == hosts, || format!("{choice:?} of {hosts} hosts"))?;
            }
        }
        Ok(())
    });
}
