//! Mistakes under `provider:` and in `hosts`, each shown at its place and in the file's words.

use gpucl::spec;
use serde_json::{Value, json};

use super::refuses_with;

/// Words of Rust's readers, which say nothing about a file.
const RUSTS: [&str; 9] = [
    "invalid type",
    "invalid value",
    "invalid length",
    "expected ",
    "unknown field",
    "missing field",
    "unknown variant",
    "did not match",
    "f64",
];

#[track_caller]
fn refuses(text: &str, shown: &str) {
    refuses_with(text, shown, &gpucl::providers::find);
}

#[test]
fn two_mistakes_are_both_shown_where_they_are() {
    refuses(
        "name: s\nruntime: native\nprovider:\n  name: slurm\n  account: def-me\n  host: login\n  hours: 24:00:00\n  sbatch: --mail-type=END\n",
        r#"
  cluster.yaml:7:10: provider.hours: is the text `24:00:00`, must be a number
     7 |   hours: 24:00:00
       |          ^^^^^^^^
  for example: 24

  cluster.yaml:8:11: provider.sbatch: is the text `--mail-type=END`, must be a list
     8 |   sbatch: --mail-type=END
       |           ^^^^^^^^^^^^^^^
  a list of one is: ["--mail-type=END"]
"#,
    );
}

#[test]
fn a_mistake_in_nested_maps_is_shown_at_its_own_key() {
    refuses(
        "name: k\nprovider:\n  name: kubernetes\n  pods: {image: a}\n  groups:\n    gpu:\n      labels:\n        tier: 1\n      tolerations:\n        - key\n      mounts:\n        - path: /x\n          claims: y\n",
        r#"
  cluster.yaml:8:15: provider.groups.gpu.labels.tier: is the number 1, must be text
     8 |         tier: 1
       |               ^
  in quotes it is text: "1"

  cluster.yaml:10:11: provider.groups.gpu.tolerations[0]: is the text `key`, must be a map of keys
    10 |         - key
       |           ^^^

  cluster.yaml:13:11: provider.groups.gpu.mounts[0].claims: unknown key
    13 |           claims: y
       |           ^^^^^^
  did you mean `claim`?
"#,
    );
}

#[test]
fn a_wrong_form_and_a_wrong_meaning_are_shown_at_once() {
    refuses(
        "name: s\nruntime: native\nprovider:\n  name: slurm\n  cpus: many\n  sbatch: [--requeue, --time=5]\n  modules: [{from: ../x}]\n",
        r"
  cluster.yaml:3:1: provider.host: is missing: the cluster's login machine, or `local` on that machine itself
     3 | provider:
       | ^^^^^^^^

  cluster.yaml:5:9: provider.cpus: is the text `many`, must be a whole number
     5 |   cpus: many
       |         ^^^^

  cluster.yaml:6:23: provider.sbatch[1]: `--time` cannot be set here; use `hours`
     6 |   sbatch: [--requeue, --time=5]
       |                       ^^^^^^^^

  cluster.yaml:7:13: provider.modules[0]: is a map of keys, must be text
     7 |   modules: [{from: ../x}]
       |             ^
",
    );
}

#[test]
fn hosts_are_read_like_the_rest() {
    refuses(
        "name: s\nprovider: ssh\nhosts:\n  - {prot: 22}\n  - {node: a, port: 99999}\n  - 7\n  - {node: [b]}\n",
        r"
  cluster.yaml:4:5: hosts[0].node: is missing
     4 |   - {prot: 22}
       |     ^

  cluster.yaml:4:6: hosts[0].prot: unknown key
     4 |   - {prot: 22}
       |      ^^^^
  did you mean `port`?

  cluster.yaml:5:21: hosts[1].port: 99999 is out of range: 1 to 65535
     5 |   - {node: a, port: 99999}
       |                     ^^^^^

  cluster.yaml:6:5: hosts[2]: is the number 7, must be a map of keys or text
     6 |   - 7
       |     ^

  cluster.yaml:7:6: hosts[3].node: is a list, must be text
     7 |   - {node: [b]}
       |      ^^^^
",
    );
    refuses(
        "name: s\nprovider: ssh\n",
        r"
  cluster.yaml:1:1: hosts[0].node: is missing
     1 | name: s
       | ^
",
    );
    refuses(
        "name: s\nprovider: {name: lambda, types: a100}\nhosts: [{}, {gpus: 2}]\n",
        r#"
  cluster.yaml:2:33: provider.types: is the text `a100`, must be a list
     2 | provider: {name: lambda, types: a100}
       |                                 ^^^^
  a list of one is: ["a100"]

  cluster.yaml:3:20: hosts[1].gpus: is the number 2, must be a map of keys
     3 | hosts: [{}, {gpus: 2}]
       |                    ^
"#,
    );
}

#[test]
fn hosts_that_are_a_name_alone_or_empty_are_read() {
    for text in [
        "name: s\nprovider: ssh\nhosts: [gpu1, {node: gpu2}]\n",
        "name: s\nprovider: lambda\nhosts: [gpu_1x_a10]\n",
        "name: s\nprovider: chameleon\nhosts: [liqid01]\nruntime: docker\n",
        "name: s\nhosts:\n  -\n",
        "name: s\nprovider: {name: slurm, host: x, gpus: 2}\nruntime: native\nhosts:\n  -\n  - {}\n",
    ] {
        if let Err(error) = spec::parse("cluster.yaml", text, &gpucl::providers::find) {
            unreachable!("{text}: {}", error.shown_snippet().unwrap_or_default());
        }
    }
}

/// A key of a provider: the lines that lead to it, and the types of its values.
struct Leaf {
    above: Vec<String>,
    key: String,
    types: Vec<String>,
}

fn resolved<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    let name = schema.get("$ref").and_then(Value::as_str);
    name.and_then(|name| root.pointer(name.strip_prefix('#')?)).unwrap_or(schema)
}

fn forms<'a>(schema: &'a Value, root: &'a Value) -> Vec<&'a Value> {
    let schema = resolved(schema, root);
    match schema.get("anyOf").or_else(|| schema.get("oneOf")).and_then(Value::as_array) {
        Some(several) => several.iter().flat_map(|form| forms(form, root)).collect(),
        None => vec![schema],
    }
}

fn types(schema: &Value, root: &Value) -> Vec<String> {
    let of = |form: &&Value| match &form["type"] {
        Value::String(one) => vec![one.clone()],
        Value::Array(several) => several.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    };
    forms(schema, root).iter().flat_map(of).collect()
}

/// Every key of a schema, at every depth, with one item of each list and one key of each free map.
fn leaves(schema: &Value, root: &Value, above: &[String], indent: usize, found: &mut Vec<Leaf>) {
    let blank = " ".repeat(indent);
    for form in forms(schema, root) {
        for (key, below) in form.get("properties").and_then(Value::as_object).into_iter().flatten() {
            found.push(Leaf { above: above.to_vec(), key: format!("{blank}{key}"), types: types(below, root) });
            let deeper = [above, &[format!("{blank}{key}:")]].concat();
            leaves(below, root, &deeper, indent + 2, found);
        }
        if let Some(each) = form.get("additionalProperties").filter(|each| each.is_object()) {
            found.push(Leaf { above: above.to_vec(), key: format!("{blank}some"), types: types(each, root) });
            leaves(each, root, &[above, &[format!("{blank}some:")]].concat(), indent + 2, found);
        }
        if let Some(each) = form.get("items") {
            leaves(each, root, &[above, &[format!("{blank}-")]].concat(), indent + 2, found);
        }
    }
}

fn kind(value: &Value) -> &'static [&'static str] {
    match value {
        Value::Null => &["null"],
        Value::Bool(_) => &["boolean"],
        Value::Number(number) if number.is_f64() => &["number"],
        Value::Number(_) => &["number", "integer"],
        Value::String(_) => &["string"],
        Value::Array(_) => &["array"],
        Value::Object(_) => &["object"],
    }
}

#[test]
fn every_key_of_every_provider_refuses_other_types_at_its_place() {
    let values = [
        json!(null),
        json!(true),
        json!(-1),
        json!(1.5),
        json!(u64::MAX),
        json!("words of a text"),
        json!([[]]),
        json!({ "zzzzzz": {} }),
    ];
    let mut tried = 0;
    for factory in gpucl::providers::all() {
        let name = factory.manifest().unwrap().name;
        for (schema, head) in [
            (factory.settings_schema().to_value(), format!("name: s\nprovider:\n  name: {name}\n")),
            (factory.host_schema().to_value(), format!("name: s\nprovider: {name}\nhosts:\n-\n")),
        ] {
            let mut found = Vec::new();
            leaves(&schema, &schema, &[], 2, &mut found);
            for Leaf { above, key, types } in found {
                for value in &values {
                    let above = above.iter().map(|line| format!("{line}\n")).collect::<String>();
                    let line = head.lines().count() + above.lines().count() + 1;
                    let text = format!("{head}{above}{key}: {value}\n");
                    let error = spec::parse("c", &text, &gpucl::providers::find).err();
                    let shown = error.map(|error| error.shown_snippet().unwrap_or_default().to_owned());
                    let shown = shown.unwrap_or_default();
                    assert!(!RUSTS.iter().any(|words| shown.contains(words)), "{text}\n{shown}");
                    if !types.is_empty() && !kind(value).iter().any(|kind| types.iter().any(|of| of == kind)) {
                        assert!(shown.contains(&format!("  c:{line}:")), "{text}\n{shown}");
                        tried += 1;
                    }
                }
            }
        }
    }
    assert!(tried > 500, "{tried}");
}

#[test]
fn settings_without_a_file_name_the_key_too() {
    let factory = gpucl::providers::find("slurm").unwrap();
    let errors =
        spec::check_settings(factory, &json!({"host": "x", "hours": "3h", "modules": [{}, 1]}), &[json!({"gpu": 1})]);
    let shown: Vec<String> = errors.iter().map(|error| format!("{}: {}", error.path, error.message)).collect();
    assert_eq!(
        shown,
        [
            "hours: is the text `3h`, must be a number; for example: 24",
            "modules[0]: is a map of keys, must be text",
            "modules[1]: is the number 1, must be text; in quotes it is text: \"1\"",
            "hosts[0].gpu: unknown key; no keys are allowed here",
        ]
    );
    assert_eq!(spec::check_settings(factory, &json!({"host": "x"}), &[Value::Null]), []);
    assert_eq!(spec::check_settings(factory, &json!({}), &[])[0].path, "host");
}
