use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::super::contract::Contract;
use super::super::schema::{KEYWORDS, ProblemKind, Schemas, network, patterns};
use super::super::totals;
use super::client::{cloud, refused};

/// Collects all keywords of a schema.
fn keywords(schema: &Value, is_map: bool, found: &mut BTreeSet<String>) {
    match schema {
        Value::Object(fields) => {
            for (name, inner) in fields {
                if !is_map {
                    found.insert(name.clone());
                }
                // Below these, the keys are names, not keywords.
                if !["default", "const", "enum", "required"].contains(&name.as_str()) || is_map {
                    keywords(inner, !is_map && name == "properties", found);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|inner| keywords(inner, false, found)),
        _ => {}
    }
}

#[test]
fn every_schema_keyword_of_the_contract_is_supported() {
    let root = &Contract::shared().root;
    let mut found = BTreeSet::new();
    keywords(&root["components"]["schemas"], true, &mut found);
    for operation in root["paths"].as_object().unwrap().values().flat_map(|item| item.as_object().unwrap().values()) {
        for content in operation["responses"].as_object().unwrap().values().chain([&operation["requestBody"]]) {
            keywords(&content["content"]["application/json"]["schema"], false, &mut found);
        }
    }
    // `writeOnly` belongs to the user data, which no answer has.
    let unknown: Vec<&String> =
        found.iter().filter(|word| !KEYWORDS.contains(&word.as_str()) && *word != "writeOnly").collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    assert!(found.len() > 12, "{found:?}");
}

/// The validator's violations; empty for a valid value.
fn said(schema: &Value, value: &Value) -> Vec<(ProblemKind, String)> {
    let mut ready = BTreeMap::new();
    patterns(schema, &mut ready);
    let schemas = Schemas { root: schema, patterns: &ready };
    schemas.check(schema, value).into_iter().map(|problem| (problem.kind, problem.text)).collect()
}

#[test]
fn each_keyword_rejects_invalid_values() {
    let object = json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "integer", "maximum": 5, "minimum": 1},
        "b": {"$ref": "#/there"}, "c": {"anyOf": [{"enum": ["x"]}, {"type": "boolean"}]}, "d": {"const": 1}},
        "there": {"type": "string", "maxLength": 3, "minLength": 2, "pattern": "^[a-z]*$"}});
    let map = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let list = json!({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2});
    let time = json!({"type": "string", "format": "date-time"});
    let net = json!({"type": "string", "format": "ipv4network"});
    for (schema, fine) in [
        (&object, json!({"a": 1, "b": "aé".replace('é', "b"), "c": true, "d": 1})),
        (&object, json!({"a": 5, "c": "x"})),
        (&map, json!({"anything": "goes"})),
        (&list, json!([1, 2])),
        (&time, json!("2026-07-01T00:00:00.000Z")),
        (&net, json!("10.0.0.0/8")),
    ] {
        assert_eq!(said(schema, &fine), [], "{fine}");
    }
    for (schema, wrong) in [
        (&object, json!({})),
        (&object, json!([])),
        (&object, json!({"a": 0})),
        (&object, json!({"a": 6})),
        (&object, json!({"a": 1.5})),
        (&object, json!({"a": "1"})),
        (&object, json!({"a": 1, "b": "abcd"})),
        (&object, json!({"a": 1, "b": "a"})),
        (&object, json!({"a": 1, "b": "AB"})),
        (&object, json!({"a": 1, "c": "y"})),
        (&object, json!({"a": 1, "d": 2})),
        (&object, json!({"a": 1, "e": 2})),
        (&map, json!({"anything": 1})),
        (&list, json!([])),
        (&list, json!([1, 2, 3])),
        (&list, json!(["1"])),
        (&time, json!("yesterday")),
        (&net, json!("10.0.0.1/8")),
        (&net, json!("10.0.0.0/33")),
        (&net, json!("somewhere")),
    ] {
        assert_eq!(said(schema, &wrong).len(), 1, "{wrong}");
    }
    assert_eq!(said(&object, &json!({"a": 1, "e": 2}))[0].0, ProblemKind::UnknownField);
    assert_eq!(network("1.2.3.4").as_deref(), Some("1.2.3.4/32"));
    assert_eq!(network("0.0.0.0/0").as_deref(), Some("0.0.0.0/0"));
}

#[tokio::test]
async fn an_invalid_request_is_refused_and_recorded() {
    let cloud = cloud().await;
    let wrong = [
        json!({"quantity": 1}),
        json!({"ssh_key_names": []}),
        json!({"ssh_key_names": ["ours", "ours"]}),
        json!({"ssh_key_names": "ours"}),
        json!({"ssh_key_names": null}),
        json!({"name": "n".repeat(65)}),
        json!({"hostname": "Not-A-Name"}),
        json!({"tags": [{"key": "Upper", "value": "1"}]}),
        json!({"tags": [{"key": "k", "value": "one letter is too short a key"}]}),
        json!({"tags": {"gpucl": "1"}}),
        json!({"file_system_mounts": [{"mount_point": "/etc", "file_system_id": "x"}]}),
        json!({"image": {}}),
        json!({"user_data": ["#cloud-config"]}),
        json!({"user_data": "x".repeat(1_000_001)}),
    ];
    for more in &wrong {
        refused(&cloud.launch(more.clone()).await, 400, "global/invalid-parameters");
    }
    let mut lacks = cloud.asked();
    lacks.as_object_mut().unwrap().shift_remove("ssh_key_names");
    refused(&cloud.call("POST", "/instance-operations/launch", lacks).await, 400, "global/invalid-parameters");
    assert_eq!(cloud.sandbox.snapshot().instances.len(), 0);
    // The limits of keys and user data are only in the document's text: exceeding them is refused, but is no violation.
    let kept = cloud.sandbox.violations();
    assert_eq!(kept.len(), wrong.len() + 1 - 3, "{kept:#?}");
    assert!(kept[0].to_string().contains("`quantity` is not known"), "{}", kept[0]);
    let error = cloud.sandbox.check().unwrap_err();
    assert!(format!("{error:?}").contains("quantity"), "{error:?}");
    cloud.sandbox.forget_violations();
    cloud.sandbox.check().unwrap();
}

#[tokio::test]
async fn undocumented_paths_methods_and_parameters_are_recorded() {
    let cloud = cloud().await;
    refused(&cloud.call("GET", "/nonsense", Value::Null).await, 404, "global/not-found");
    refused(&cloud.call("DELETE", "/instances", Value::Null).await, 404, "global/not-found");
    refused(&cloud.call("GET", "/instances?status=active", Value::Null).await, 400, "global/invalid-parameters");
    refused(&cloud.call("GET", "/instances", json!({})).await, 400, "global/invalid-parameters");
    assert_eq!(cloud.get("/instances?cluster_id=x").await, json!([]));
    assert_eq!(cloud.sandbox.violations().len(), 4, "{:#?}", cloud.sandbox.violations());
    assert_eq!(cloud.sandbox.validated().undeclared["unknown path"], 2);
}

#[tokio::test]
async fn comparisons_are_counted_per_stand_in_and_per_process() {
    let (before, cloud) = (totals(), cloud().await);
    for path in ["/instances", "/instance-types", "/images", "/regions", "/ssh-keys", "/file-systems"] {
        cloud.get(path).await;
    }
    for path in ["/firewall-rules", "/firewall-rulesets", "/firewall-rulesets/global"] {
        cloud.get(path).await;
    }
    let (validated, after) = (cloud.sandbox.validated(), totals());
    assert_eq!((validated.requests, validated.answers, validated.violations), (9, 9, 0));
    assert!(after.requests >= before.requests + 9 && after.answers >= before.answers + 9);
    assert!(validated.to_string().starts_with("9 requests and 9 answers"), "{validated}");
    cloud.sandbox.check().unwrap();
}

#[tokio::test]
async fn undeclared_answers_are_counted_by_name_and_wrong_ones_recorded() {
    let cloud = cloud().await;
    cloud.sandbox.change(|config| config.unknown_fields = true);
    let id = cloud.launched().await;
    assert_eq!(cloud.get("/instances").await[0]["is_reserved"], json!(false));
    cloud.sandbox.make_strange(&id);
    assert_eq!(cloud.status(&id).await, "alert");
    let validated = cloud.sandbox.validated();
    assert_eq!((validated.undeclared["unknown field"], validated.undeclared["unknown value"]), (2, 1));
    cloud.sandbox.check().unwrap();
    let broken = super::super::Rule::new("GET", "/regions$", "status:200").with_body(r#"{"data": [{"name": 1}]}"#);
    cloud.sandbox.fault(broken).unwrap();
    cloud.call("GET", "/regions", Value::Null).await;
    let kept = cloud.sandbox.violations();
    assert_eq!((kept.len(), kept[0].of, kept[0].what.len()), (1, "answer", 2), "{kept:?}");
}
