//! Keys and values of a wrong form, which the schema finds.

use super::{read, refuses};

#[test]
fn an_unknown_key_is_shown_with_a_near_name() {
    refuses(
        "name: demo\nray:\n  wokers:\n    count: 2\n",
        r"
  cluster.yaml:3:3: ray.wokers: unknown key
     3 |   wokers:
       |   ^^^^^^
  did you mean `workers`?
",
    );
}

#[test]
fn an_unknown_key_without_a_near_name_lists_what_is_known() {
    refuses(
        "name: demo\nray:\n  colour: blue\n",
        r"
  cluster.yaml:3:3: ray.colour: unknown key
     3 |   colour: blue
       |   ^^^^^^
  known here: version, head, workers, capabilities
",
    );
}

#[test]
fn a_key_that_belongs_one_level_deeper_is_shown_where() {
    refuses(
        "name: demo\nworkers: {count: 2}\n",
        r"
  cluster.yaml:2:1: workers: unknown key
     2 | workers: {count: 2}
       | ^^^^^^^
  it belongs under `ray`
",
    );
}

#[test]
fn a_duplicate_key_is_refused() {
    refuses(
        "name: demo\nray:\n  workers:\n    cpus: 1\n    count: 2\n    cpus: 2\n",
        r"
  cluster.yaml:6:5: ray.workers.cpus: duplicate key
     6 |     cpus: 2
       |     ^^^^
  first given in line 4
",
    );
}

#[test]
fn a_duplicate_variable_is_refused() {
    refuses(
        "name: demo\nenvironment:\n  MODE: a\n  'MODE': b\n",
        r"
  cluster.yaml:4:3: environment.MODE: duplicate key
     4 |   'MODE': b
       |   ^^^^^^
  first given in line 3
",
    );
}

#[test]
fn a_missing_name_is_refused() {
    refuses(
        "provider: local\n",
        r"
  cluster.yaml:1:1: name: is missing
     1 | provider: local
       | ^
  for example: `name: demo`
",
    );
}

#[test]
fn a_name_of_another_form_is_refused() {
    refuses(
        "name: My_Cluster\n",
        r"
  cluster.yaml:1:7: name: `My_Cluster` is not a cluster name: use 1 to 20 of a-z, 0-9 and -, beginning with a letter
     1 | name: My_Cluster
       |       ^^^^^^^^^^
",
    );
}

#[test]
fn a_number_is_no_text() {
    refuses(
        "name: demo\nray:\n  version: 2.60\n",
        r"
  cluster.yaml:3:12: ray.version: is the number 2.60, must be text
     3 |   version: 2.60
       |            ^^^^
  for example: 2.60.0
",
    );
}

#[test]
fn a_text_is_no_number() {
    refuses(
        "name: demo\nray:\n  workers:\n    count: two\n",
        r"
  cluster.yaml:4:12: ray.workers.count: is the text `two`, must be a whole number
     4 |     count: two
       |            ^^^
",
    );
}

#[test]
fn a_fraction_is_no_whole_number() {
    refuses(
        "name: demo\nray:\n  workers:\n    cpus: 1.5\n",
        r"
  cluster.yaml:4:11: ray.workers.cpus: is the number 1.5, must be a whole number
     4 |     cpus: 1.5
       |           ^^^
",
    );
}

#[test]
fn a_provider_without_a_name_is_refused() {
    refuses(
        "name: demo\nprovider: {site: north}\nray:\n  version: 1.0.0\n",
        r"
  cluster.yaml:2:1: provider.name: is missing
     2 | provider: {site: north}
       | ^^^^^^^^

  cluster.yaml:4:12: ray.version: Ray 1.0.0 is too old: the oldest supported version is 2.54.0
     4 |   version: 1.0.0
       |            ^^^^^
  older versions cannot require a token on every port
",
    );
}

#[test]
fn a_list_is_no_map() {
    refuses(
        "name: demo\nray:\n  - head\n",
        r"
  cluster.yaml:2:1: ray: is a list, must be a map of keys
     2 | ray:
       | ^^^
",
    );
}

#[test]
fn a_map_is_no_list() {
    refuses(
        "name: demo\nhosts:\n  node: a\n",
        r"
  cluster.yaml:2:1: hosts: is a map of keys, must be a list
     2 | hosts:
       | ^^^^^
",
    );
}

#[test]
fn a_truth_value_is_no_text() {
    refuses(
        "name: demo\nenvironment:\n  DEBUG: true\n",
        r#"
  cluster.yaml:3:10: environment.DEBUG: is the boolean true, must be text
     3 |   DEBUG: true
       |          ^^^^
  in quotes it is text: "true"
"#,
    );
}

#[test]
fn an_old_truth_value_is_a_text() {
    refuses(
        "name: demo\noversubscribe: yes\n",
        r"
  cluster.yaml:2:16: oversubscribe: is the text `yes`, must be true or false
     2 | oversubscribe: yes
       |                ^^^
",
    );
}

#[test]
fn an_empty_value_is_refused() {
    refuses(
        "name: demo\nray:\n",
        r"
  cluster.yaml:2:1: ray: is empty, must be a map of keys
     2 | ray:
       | ^^^
  give it a value, or leave the key out
",
    );
}

#[test]
fn more_workers_than_256_are_refused() {
    refuses(
        "name: demo\nray: {workers: {count: 300}}\n",
        r"
  cluster.yaml:2:24: ray.workers.count: 300 is out of range: 0 to 256
     2 | ray: {workers: {count: 300}}
       |                        ^^^
",
    );
}

#[test]
fn workers_are_a_map_or_a_list_of_maps() {
    refuses(
        "name: demo\nray:\n  workers: 2\n",
        r"
  cluster.yaml:3:12: ray.workers: is the number 2, must be a map of keys or a list
     3 |   workers: 2
       |            ^
",
    );
    refuses(
        "name: demo\nray:\n  workers:\n    - {name: a, cuont: 2}\n    - b\n",
        r"
  cluster.yaml:4:17: ray.workers[0].cuont: unknown key
     4 |     - {name: a, cuont: 2}
       |                 ^^^^^
  did you mean `count`?

  cluster.yaml:5:7: ray.workers[1]: is the text `b`, must be a map of keys
     5 |     - b
       |       ^
",
    );
    refuses(
        "name: demo\nray: {workers: []}\n",
        r"
  cluster.yaml:2:7: ray.workers: has 0 entries, must have at least 1
     2 | ray: {workers: []}
       |       ^^^^^^^
",
    );
}

#[test]
fn fewer_cpus_than_none_are_refused() {
    refuses(
        "name: demo\nray:\n  workers: {cpus: -1}\n",
        r"
  cluster.yaml:3:19: ray.workers.cpus: -1 is out of range: 0 to 4096
     3 |   workers: {cpus: -1}
       |                   ^^
",
    );
}

#[test]
fn a_privileged_port_is_refused() {
    refuses(
        "name: demo\nray:\n  head:\n    dashboard_port: 80\n",
        r"
  cluster.yaml:4:21: ray.head.dashboard_port: 80 is out of range: 1024 to 65535
     4 |     dashboard_port: 80
       |                     ^^
",
    );
}

#[test]
fn a_value_outside_the_enumeration_is_refused() {
    refuses(
        "name: demo\nruntime: dockr\n",
        r"
  cluster.yaml:2:10: runtime: `dockr` must be one of: native, docker
     2 | runtime: dockr
       |          ^^^^^
  did you mean `docker`?
",
    );
}

#[test]
fn an_unknown_key_says_where_the_keys_are() {
    let error = read("name: demo\ncolour: blue\n").unwrap_err();
    assert_eq!(error.hints(), ["`gpucl schema` prints every key and its type"]);
    assert_eq!(error.to_string(), "read the spec cluster.yaml: cluster.yaml:2:1: colour: unknown key");
}

#[test]
fn at_most_twenty_errors_are_shown() {
    let keys: String = (0..25).map(|number| format!("wrong{number}: 1\n")).collect();
    let error = read(&format!("name: demo\n{keys}")).unwrap_err();
    let snippet = error.shown_snippet().unwrap();
    assert_eq!(snippet.matches("unknown key").count(), 20);
    assert!(snippet.ends_with("  and 5 more"), "{snippet}");
}
