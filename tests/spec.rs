//! What a spec may say, and what a wrong one is answered.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gpucl::error::{Error, ErrorKind, Result};
use gpucl::provider::{Capability, Context, Factory, FieldError, Manifest, Provider, ProviderKind};
use gpucl::spec::{self, Loaded, Memory, Per, Runtime};
use serde_json::{Value, json};

use crate::support::TestEnv;

/// A provider that is only asked whether its settings are right.
struct Hall;

static HALL: Hall = Hall;

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its form is used")]
struct HallSettings {
    /// The site.
    #[serde(default)]
    site: Option<Site>,
}

/// A site of the hall.
#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Site {
    North,
    South,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its form is used")]
struct HallHost {
    /// The host's name.
    #[serde(default)]
    node: Option<String>,
}

impl Factory for Hall {
    fn manifest(&self) -> Result<Manifest> {
        Ok(Manifest { name: "hall".into(), summary: "a hall of machines".into(), secrets: vec![], docs: String::new() })
    }

    fn capability(&self) -> Capability {
        Capability {
            kind: ProviderKind::Host,
            costs_money: false,
            extend: false,
            console: false,
            several_resources: false,
            shared_account: false,
            settle: Duration::ZERO,
            runtimes: &[Runtime::Native],
            most_hosts: Some(2),
        }
    }

    fn settings_schema(&self) -> schemars::Schema {
        schemars::schema_for!(HallSettings)
    }

    fn host_schema(&self) -> schemars::Schema {
        schemars::schema_for!(HallHost)
    }

    fn check(&self, settings: &Value, hosts: &[Value]) -> Vec<FieldError> {
        let mut errors = Vec::new();
        for key in settings.as_object().into_iter().flat_map(|keys| keys.keys()).filter(|key| *key != "site") {
            errors.push(FieldError { path: key.clone(), message: "unknown key".into(), known: vec!["site".into()] });
        }
        for (index, host) in hosts.iter().enumerate() {
            if host.get("node").is_some_and(|node| !node.is_string()) {
                let path = format!("hosts[{index}].node");
                errors.push(FieldError { path, message: "must be a host's name".into(), known: vec![] });
            }
        }
        errors
    }

    fn open(&self, _settings: &Value, _context: &Context) -> Result<Box<dyn Provider>> {
        Err(Error::new(ErrorKind::Internal, "open a provider that is only asked"))
    }
}

/// Finds the hall under its own name and under the default one.
fn lookup(name: &str) -> Result<&'static dyn Factory> {
    match name {
        "hall" | "local" => Ok(&HALL),
        _ => Err(Error::new(ErrorKind::Usage, format!("find the provider `{name}`"))
            .because("no provider has that name")
            .hint("the providers are: hall, local")
            .hint("did you mean `local`?")),
    }
}

fn read(text: &str) -> Result<Loaded> {
    spec::parse_with("cluster.yaml", text, &lookup)
}

/// Asserts that a spec is refused, and what is shown of it.
#[track_caller]
fn refuses(text: &str, shown: &str) {
    let error = read(text).expect_err("it is refused");
    assert_eq!(error.kind(), ErrorKind::Spec);
    assert_eq!(error.doing(), "read the spec cluster.yaml");
    let snippet = error.shown_snippet().expect("it shows where");
    assert_eq!(snippet, shown.trim_matches('\n'), "it shows:\n{snippet}\n");
}

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
  known here: version, head, workers
",
    );
}

#[test]
fn a_duplicate_key_is_seen() {
    refuses(
        "name: demo\nray:\n  workers:\n    cpus: 1\n    count: 2\n    cpus: 2\n",
        r"
  cluster.yaml:6:5: ray.workers.cpus: duplicate key
     6 |     cpus: 2
       |     ^^^^
  it stands in line 4 already
",
    );
}

#[test]
fn a_duplicate_variable_is_seen() {
    refuses(
        "name: demo\nenvironment:\n  MODE: a\n  'MODE': b\n",
        r"
  cluster.yaml:4:3: environment.MODE: duplicate key
     4 |   'MODE': b
       |   ^^^^^^
  it stands in line 3 already
",
    );
}

#[test]
fn a_missing_name_is_told() {
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
  cluster.yaml:1:7: name: `My_Cluster` is no cluster name: it takes 1 to 20 of a-z, 0-9 and -, and begins with a letter
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
fn a_provider_without_a_name_is_told() {
    refuses(
        "name: demo\nprovider: {site: north}\nray:\n  version: 1.0.0\n",
        r"
  cluster.yaml:2:1: provider.name: is missing
     2 | provider: {site: north}
       | ^^^^^^^^

  cluster.yaml:4:12: ray.version: Ray 1.0.0 is too old: 2.54.0 is the oldest
     4 |   version: 1.0.0
       |            ^^^^^
  older ones cannot ask for a token on every port
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
  cluster.yaml:3:10: environment.DEBUG: is the truth value true, must be text
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
fn an_empty_value_is_told() {
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
fn a_word_that_is_none_of_the_choice_is_refused() {
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
fn a_version_of_two_numbers_is_refused() {
    refuses(
        "name: demo\nray:\n  version: '2.60'\n",
        r"
  cluster.yaml:3:12: ray.version: `2.60` is no version of Ray: it takes three numbers
     3 |   version: '2.60'
       |            ^^^^^^
  for example: 2.60.0
",
    );
}

#[test]
fn a_version_without_the_token_is_refused() {
    refuses(
        "name: demo\nray:\n  version: 2.53.9\n",
        r"
  cluster.yaml:3:12: ray.version: Ray 2.53.9 is too old: 2.54.0 is the oldest
     3 |   version: 2.53.9
       |            ^^^^^^
  older ones cannot ask for a token on every port
",
    );
}

#[test]
fn an_amount_that_is_none_is_refused() {
    refuses(
        "name: demo\nray:\n  workers:\n    memory: lots\n",
        r"
  cluster.yaml:4:13: ray.workers.memory: `lots` is no amount of memory: write it like `512MiB` or `2GiB`
     4 |     memory: lots
       |             ^^^^
",
    );
}

#[test]
fn too_little_shared_memory_is_refused() {
    refuses(
        "name: demo\nray:\n  head:\n    object_store_memory: 74MiB\n",
        r"
  cluster.yaml:4:26: ray.head.object_store_memory: 74.0 MiB is too little: Ray takes 75MiB or more
     4 |     object_store_memory: 74MiB
       |                          ^^^^^
",
    );
}

#[test]
fn a_wait_that_is_none_is_refused() {
    refuses(
        "name: demo\ntimeouts:\n  start: 90\n  ready: soon\n  stop: 0s\n  prepare: 200h\n",
        r"
  cluster.yaml:3:10: timeouts.start: is the number 90, must be text
     3 |   start: 90
       |          ^^
  for example: 90s

  cluster.yaml:4:10: timeouts.ready: `soon` is no duration: write it like `90s`, `5m` or `1h 30m`
     4 |   ready: soon
       |          ^^^^

  cluster.yaml:5:9: timeouts.stop: `0s` is no duration: write it like `90s`, `5m` or `1h 30m`
     5 |   stop: 0s
       |         ^^

  cluster.yaml:6:12: timeouts.prepare: `200h` is too long: 168h is the longest
     6 |   prepare: 200h
       |            ^^^^
",
    );
}

#[test]
fn variables_of_ours_are_refused() {
    refuses(
        "name: demo\nenvironment:\n  GPUCL_OWNER: x\n  RAY_AUTH_MODE: disabled\n  RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER: '1'\n  MY_OWN: '1'\n",
        r"
  cluster.yaml:3:3: environment.GPUCL_OWNER: is set by gpucl itself
     3 |   GPUCL_OWNER: x
       |   ^^^^^^^^^^^
  leave it out

  cluster.yaml:4:3: environment.RAY_AUTH_MODE: is set by gpucl itself
     4 |   RAY_AUTH_MODE: disabled
       |   ^^^^^^^^^^^^^
  leave it out

  cluster.yaml:5:3: environment.RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER: is set by gpucl itself
     5 |   RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER: '1'
       |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  leave it out
",
    );
}

#[test]
fn a_variable_that_no_shell_knows_is_refused() {
    refuses(
        "name: demo\nenvironment:\n  MY-OWN: '1'\n  TEXT: \"two\\nlines\"\n",
        r#"
  cluster.yaml:3:3: environment.MY-OWN: is no name of a variable: it takes letters, digits and `_`
     3 |   MY-OWN: '1'
       |   ^^^^^^

  cluster.yaml:4:9: environment.TEXT: has a line break or another control character, must be one line
     4 |   TEXT: "two\nlines"
       |         ^^^^^^^^^^^^
"#,
    );
}

#[test]
fn resources_and_labels_follow_rays_rules() {
    refuses(
        "name: demo\nray:\n  workers:\n    resources:\n      GPU: 1\n      slot: 0.5\n    labels:\n      ray.io/zone: a\n      zone: '-a'\n",
        r#"
  cluster.yaml:5:7: ray.workers.resources.GPU: has a key of its own: ray.workers.gpus
     5 |       GPU: 1
       |       ^^^

  cluster.yaml:6:13: ray.workers.resources.slot: 0.5 is no amount: Ray takes whole numbers from 0 to 1e14
     6 |       slot: 0.5
       |             ^^^

  cluster.yaml:8:7: ray.workers.labels."ray.io/zone": labels under `ray.io/` are Ray's own
     8 |       ray.io/zone: a
       |       ^^^^^^^^^^^

  cluster.yaml:9:13: ray.workers.labels.zone: has no value for a label: it takes up to 63 letters, digits, `.`, `-` and `_`
     9 |       zone: '-a'
       |             ^^^^
  it begins and ends with a letter or digit
"#,
    );
}

#[test]
fn count_contradicts_per() {
    refuses(
        "name: demo\nray:\n  workers:\n    count: 2\n    per: host\n",
        r"
  cluster.yaml:5:10: ray.workers.per: contradicts ray.workers.count
     5 |     per: host
       |          ^^^^
  `count` says how many workers there are, `per` has them counted: keep one of the two
",
    );
}

#[test]
fn per_gpu_contradicts_two_gpus() {
    refuses(
        "name: demo\nray:\n  workers:\n    per: gpu\n    gpus: 2\n",
        r"
  cluster.yaml:5:11: ray.workers.gpus: 2 contradicts `per: gpu`, which gives each worker one
     5 |     gpus: 2
       |           ^
  leave `gpus` out, or use `per: host` or `count`
",
    );
}

#[test]
fn declared_gpus_cannot_be_counted() {
    refuses(
        "name: demo\ngpu: declared\nray:\n  workers:\n    per: gpu\n",
        r"
  cluster.yaml:2:6: gpu: `declared` contradicts ray.workers.per: gpu
     2 | gpu: declared
       |      ^^^^^^^^
  GPUs that are only declared cannot be counted: write `count` and `gpus` instead of `per`
",
    );
}

#[test]
fn a_runtime_that_the_provider_lacks_is_refused() {
    refuses(
        "name: demo\nprovider: hall\nruntime: docker\n",
        r"
  cluster.yaml:3:10: runtime: the runtime `docker` is not available on provider `hall`
     3 | runtime: docker
       |          ^^^^^^
  available there: native
",
    );
}

#[test]
fn more_hosts_than_the_provider_has_are_refused() {
    refuses(
        "name: demo\nhosts: [{}, {}, {}]\n",
        r"
  cluster.yaml:2:1: hosts: 3 hosts, but provider `local` has at most 2 hosts
     2 | hosts: [{}, {}, {}]
       | ^^^^^
",
    );
}

#[test]
fn no_hosts_at_all_are_refused() {
    refuses(
        "name: demo\nhosts: []\n",
        r"
  cluster.yaml:2:1: hosts: has 0 entries, must have at least 1
     2 | hosts: []
       | ^^^^^
",
    );
}

#[test]
fn an_unknown_provider_is_shown_at_its_name() {
    refuses(
        "name: demo\nprovider: locl\n",
        r"
  cluster.yaml:2:11: provider: `locl`: no provider has that name
     2 | provider: locl
       |           ^^^^
  the providers are: hall, local
  did you mean `local`?
",
    );
}

#[test]
fn an_unknown_provider_with_settings_is_shown_at_its_name() {
    refuses(
        "name: demo\nprovider:\n  site: north\n  name: locl\n",
        r"
  cluster.yaml:4:9: provider.name: `locl`: no provider has that name
     4 |   name: locl
       |         ^^^^
  the providers are: hall, local
  did you mean `local`?
",
    );
}

#[test]
fn a_providers_own_key_is_shown_with_a_near_name() {
    refuses(
        "name: demo\nprovider:\n  name: hall\n  sit: north\n",
        r"
  cluster.yaml:4:3: provider.sit: unknown key
     4 |   sit: north
       |   ^^^
  did you mean `site`?
",
    );
}

#[test]
fn a_hosts_own_value_is_shown_at_its_place() {
    refuses(
        "name: demo\nhosts:\n  - node: a\n  - node: 7\n",
        r"
  cluster.yaml:4:11: hosts[1].node: must be a host's name
     4 |   - node: 7
       |           ^
",
    );
}

#[test]
fn everything_is_told_in_one_go() {
    refuses(
        "name: Demo\nprovidr: local\nruntime: docker\nray:\n  version: '2'\n  workers: {count: 2, per: gpu, cpus: many}\n",
        r"
  cluster.yaml:1:7: name: `Demo` is no cluster name: it takes 1 to 20 of a-z, 0-9 and -, and begins with a letter
     1 | name: Demo
       |       ^^^^

  cluster.yaml:2:1: providr: unknown key
     2 | providr: local
       | ^^^^^^^
  did you mean `provider`?

  cluster.yaml:5:12: ray.version: `2` is no version of Ray: it takes three numbers
     5 |   version: '2'
       |            ^^^
  for example: 2.60.0

  cluster.yaml:6:28: ray.workers.per: contradicts ray.workers.count
     6 |   workers: {count: 2, per: gpu, cpus: many}
       |                            ^^^
  `count` says how many workers there are, `per` has them counted: keep one of the two

  cluster.yaml:6:39: ray.workers.cpus: is the text `many`, must be a whole number
     6 |   workers: {count: 2, per: gpu, cpus: many}
       |                                       ^^^^
",
    );
}

#[test]
fn anchors_are_refused() {
    refuses(
        "name: demo\nray: &r {}\n",
        r"
  cluster.yaml:2:6: ray: anchors (`&name`) are not read in a spec
     2 | ray: &r {}
       |      ^^^^
  write the value itself, wherever it is needed
",
    );
}

#[test]
fn aliases_are_refused() {
    refuses(
        "name: demo\nray: *r\n",
        r"
  cluster.yaml:2:6: aliases (`*name`) are not read in a spec
     2 | ray: *r
       |      ^
  write the value itself, wherever it is needed
",
    );
}

#[test]
fn tags_are_refused() {
    refuses(
        "name: demo\nray:\n  version: !!str 2\n",
        r"
  cluster.yaml:3:12: ray.version: tags (`!name`) are not read in a spec
     3 |   version: !!str 2
       |            ^^^^^^^
  write the value itself, wherever it is needed
",
    );
}

#[test]
fn merge_keys_are_refused() {
    refuses(
        "name: demo\nray:\n  <<: {version: 2.60.0}\n",
        r"
  cluster.yaml:3:3: ray: merge keys (`<<`) are not read in a spec
     3 |   <<: {version: 2.60.0}
       |   ^^
  write the value itself, wherever it is needed
",
    );
}

#[test]
fn a_second_document_is_refused() {
    refuses(
        "name: demo\n---\nname: other\n",
        r"
  cluster.yaml:2:1: a second document begins here
     2 | ---
       | ^^^
  a file describes one cluster: write the other one to a file of its own
",
    );
}

#[test]
fn a_list_at_the_top_is_refused() {
    refuses(
        "- name: demo\n",
        r"
  cluster.yaml:1:1: is a list, must be a map of keys
     1 | - name: demo
       | ^
  the smallest spec is one line: `name: demo`
",
    );
}

#[test]
fn a_text_at_the_top_is_refused() {
    refuses(
        "demo\n",
        r"
  cluster.yaml:1:1: is the text `demo`, must be a map of keys
     1 | demo
       | ^^^^
  the smallest spec is one line: `name: demo`
",
    );
}

#[test]
fn an_empty_file_is_refused() {
    refuses(
        "",
        r"
  cluster.yaml:1:1: is empty
  the smallest spec is one line: `name: demo`
",
    );
}

#[test]
fn a_file_of_comments_is_refused() {
    refuses(
        "# later\n",
        r"
  cluster.yaml:1:1: is empty
     1 | # later
       | ^
  the smallest spec is one line: `name: demo`
",
    );
}

#[test]
fn a_tab_is_told_from_a_space() {
    refuses(
        "name: demo\nray:\n\tversion: 2.60.0\n",
        r"
  cluster.yaml:3:2: is no YAML: tabs disallowed within this context (block indentation)
     3 |  version: 2.60.0
       |  ^
  indent with spaces: YAML takes no tabs there
",
    );
}

#[test]
fn an_open_bracket_is_told() {
    refuses(
        "name: demo\nhosts: [{}\n",
        r"
  cluster.yaml:3:1: is no YAML: while parsing a flow sequence, expected ',' or ']'
  the file ends here
",
    );
}

#[test]
fn a_key_that_is_a_list_is_refused() {
    refuses(
        "name: demo\n? [a, b]\n: 1\n",
        r"
  cluster.yaml:2:3: a key is a list or a map; it must be plain text
     2 | ? [a, b]
       |   ^
",
    );
}

#[test]
fn a_carriage_return_ends_a_line() {
    refuses(
        "name: demo\r\nray:\r\n  wokers: {}\r\n",
        r"
  cluster.yaml:3:3: ray.wokers: unknown key
     3 |   wokers: {}
       |   ^^^^^^
  did you mean `workers`?
",
    );
}

#[test]
fn a_byte_order_mark_moves_nothing() {
    refuses(
        "\u{feff}naem: demo\n",
        r"
  cluster.yaml:1:1: naem: unknown key
     1 | naem: demo
       | ^^^^
  did you mean `name`?
",
    );
}

#[test]
fn wide_letters_are_counted_as_letters() {
    refuses(
        "name: demo\nenvironment: {\u{c4}\u{d6}: '\u{65e5}\u{672c}', B: 1}\n",
        r#"
  cluster.yaml:2:15: environment."ÄÖ": is no name of a variable: it takes letters, digits and `_`
     2 | environment: {ÄÖ: '日本', B: 1}
       |               ^^

  cluster.yaml:2:28: environment.B: is the number 1, must be text
     2 | environment: {ÄÖ: '日本', B: 1}
       |                            ^
  in quotes it is text: "1"
"#,
    );
}

#[test]
fn a_line_break_of_some_readers_only_is_refused() {
    refuses(
        "name: demo\nenvironment:\n  A: one\u{2028}two\n",
        r"
  cluster.yaml:3:9: the letter U+2028 stands here, which is a line break to some readers of YAML only
     3 |   A: one two
       |         ^
  take it out; in double quotes, `\n` is a line break
",
    );
}

#[test]
fn what_two_readers_read_differently_is_refused() {
    refuses(
        "name: demo\nhosts:\n  - node: a\n    weight: .inf\n",
        r"
  cluster.yaml:4:13: hosts[0].weight: can be read in two ways
     4 |     weight: .inf
       |             ^^^^
  put the value in quotes, on one line
",
    );
}

#[test]
fn control_characters_reach_no_terminal() {
    refuses(
        "name: demo\nenvironment:\n  A-\u{1b}[31m: x\n",
        r#"
  cluster.yaml:3:3: environment."A-\u{1b}[31m": is no name of a variable: it takes letters, digits and `_`
     3 |   A- [31m: x
       |   ^^^^^^^
"#,
    );
}

#[test]
fn a_long_line_is_cut() {
    refuses(
        "name: demo\nenvironment: {LONG: 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx', SHORT: 1}\n",
        r#"
  cluster.yaml:2:232: environment.SHORT: is the number 1, must be text
     2 | … xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx', SHORT: 1}
       |                                                          ^
  in quotes it is text: "1"
"#,
    );
}

#[test]
fn the_smallest_spec_is_filled_in() {
    let spec = read("name: demo\n").unwrap().spec;
    assert_eq!(spec.name.as_str(), "demo");
    assert_eq!(spec.provider.name(), "local");
    assert_eq!(spec.runtime, Runtime::Native);
    assert_eq!(spec.hosts, [json!({})]);
    assert_eq!(spec.ray.version, spec::DEFAULT_RAY_VERSION);
    assert_eq!(spec.ray.head.cpus, 0);
    assert_eq!((spec.ray.workers.count, spec.ray.workers.per), (None, None));
    assert_eq!(spec.timeouts.start.0, Duration::from_secs(120));
}

#[test]
fn everything_that_may_be_said_is_read() {
    let text = r#"
name: demo-2
provider: {name: hall, site: north}
runtime: native
hosts: [{node: a}, {node: b}]
ray:
  version: 2.55.1
  head: {cpus: 1, memory: 1GiB, object_store_memory: 78643200, dashboard_port: 8265}
  workers:
    per: host
    cpus: 4
    gpus: 2
    memory: 1.5GiB
    object_store_memory: 75MiB
    resources: {slot: 3, bay: 0}
    labels: {zone: a, example.org/rack: "7", empty: ""}
gpu: declared
oversubscribe: true
environment: {OMP_NUM_THREADS: "1", _X: ""}
timeouts: {prepare: 1h 30m, start: 90s, ready: 5m, stop: 500ms}
"#;
    let spec = read(text).unwrap().spec;
    assert_eq!(spec.provider.settings(), json!({"site": "north"}));
    assert_eq!(spec.hosts, [json!({"node": "a"}), json!({"node": "b"})]);
    assert_eq!(spec.ray.head.object_store_memory, Some(Memory(75 << 20)));
    assert_eq!(spec.ray.workers.per, Some(Per::Host));
    assert_eq!(spec.ray.workers.memory, Some(Memory(3 << 29)));
    assert_eq!(spec.ray.workers.labels["example.org/rack"], "7");
    assert_eq!(spec.timeouts.prepare.0, Duration::from_secs(5400));
    // What is written to the state is read from it again.
    let again: spec::Spec = serde_json::from_value(serde_json::to_value(&spec).unwrap()).unwrap();
    assert_eq!(again, spec);
}

#[test]
fn a_key_without_a_value_is_a_default_where_there_is_none_to_give() {
    let spec = read("name: demo\nray:\n  workers:\n    count:\n    memory: ~\n").unwrap().spec;
    assert_eq!((spec.ray.workers.count, spec.ray.workers.memory), (None, None));
}

#[test]
fn an_unknown_key_says_where_the_keys_are() {
    let error = read("name: demo\ncolour: blue\n").unwrap_err();
    assert_eq!(error.hints(), ["`gpucl schema` prints every key and what it takes"]);
    assert_eq!(error.to_string(), "read the spec cluster.yaml: cluster.yaml:2:1: colour: unknown key");
}

#[test]
fn what_is_found_later_is_shown_at_its_line_too() {
    let places = read("name: demo\nhosts:\n  - node: a\nray:\n  workers: {cpus: 64}\n").unwrap().places;
    let error = places.error("ray.workers.cpus", "64 is more than the 2 of this machine").hint("write `cpus: 1`");
    let shown = "  cluster.yaml:5:19: ray.workers.cpus: 64 is more than the 2 of this machine\n     \
                 5 |   workers: {cpus: 64}\n       |                   ^^";
    assert_eq!(error.shown_snippet(), Some(shown));
    assert_eq!(error.kind(), ErrorKind::Spec);
    assert_eq!(places.position("hosts[0].node"), (3, 11));
    assert_eq!(places.position("hosts[0]"), (3, 5));
    // What the file does not have is shown at the nearest thing above it.
    assert_eq!(places.position("ray.workers.count"), (5, 3));
    assert_eq!(places.position("timeouts.start"), (1, 1));
    assert_eq!(places.file(), "cluster.yaml");
}

#[test]
fn at_most_twenty_errors_are_shown() {
    let keys: String = (0..25).map(|number| format!("wrong{number}: 1\n")).collect();
    let error = read(&format!("name: demo\n{keys}")).unwrap_err();
    let snippet = error.shown_snippet().unwrap();
    assert_eq!(snippet.matches("unknown key").count(), 20);
    assert!(snippet.ends_with("  and 5 more"), "{snippet}");
}

/// Reads a text that is made to be expensive, and hands back what was said of it.
#[track_caller]
fn quickly_refused(text: &str) -> String {
    let begin = Instant::now();
    let error = read(text).expect_err("it is refused");
    let took = begin.elapsed();
    // Milliseconds in truth; the limit is for a busy machine.
    assert!(took < Duration::from_secs(2), "it took {took:?}");
    error.shown_snippet().unwrap().to_owned()
}

#[test]
fn an_alias_bomb_is_refused_quickly() {
    let mut bomb = "name: demo\nhosts:\n  - &l0 {node: a}\n".to_owned();
    for level in 1..30 {
        bomb.push_str(&format!("  - &l{level} [{}]\n", vec![format!("*l{}", level - 1); 10].join(", ")));
    }
    let shown = quickly_refused(&bomb);
    assert!(shown.starts_with("  cluster.yaml:3:5: hosts[0]: anchors (`&name`) are not read in a spec"), "{shown}");
}

#[test]
fn deep_nesting_is_refused_quickly() {
    let block: String = (0..10_000).map(|depth| format!("{}a:\n", " ".repeat(depth.min(90)))).collect();
    for text in [
        format!("hosts: {}{}", "[".repeat(10_000), "]".repeat(10_000)),
        format!("hosts: {}", "[".repeat(10_000)),
        format!("hosts: {}", "{a: ".repeat(10_000)),
        format!("hosts:\n{}a", "- ".repeat(10_000)),
        block,
    ] {
        let shown = quickly_refused(&text);
        assert!(shown.contains("stand in one another more than 32 deep"), "{shown}");
    }
}

#[test]
fn a_flood_is_refused_quickly() {
    let many: String = (0..60_000).map(|number| format!("k{number}: 1\n")).collect();
    let shown = quickly_refused(&many);
    assert!(shown.contains("more than 20000 keys and values stand before this one"), "{shown}");
    let shown = quickly_refused(&"#".repeat((1 << 20) + 1));
    assert!(shown.contains("has more than 1 MiB"), "{shown}");
    for piece in ["[", "{", "? ", "- ", "\"", "a: ", "&a ", "!", "%", "|\n", "'"] {
        quickly_refused(&piece.repeat((1 << 20) / piece.len()));
    }
}

fn load(path: &Path) -> Error {
    spec::load(path).expect_err("it is refused")
}

#[test]
fn a_missing_file_is_told_with_what_to_write() {
    let env = TestEnv::new();
    let error = load(&env.work().join("none.yaml"));
    assert_eq!(error.kind(), ErrorKind::Spec);
    assert_eq!(error.causes(), ["there is no such file"]);
    assert!(error.hints()[0].starts_with("write one: echo 'name: demo' > "), "{:?}", error.hints());
}

#[test]
fn a_folder_is_no_spec() {
    let env = TestEnv::new();
    let error = load(&env.work());
    assert_eq!(error.causes(), ["it is a folder"]);
    assert!(error.hints()[0].ends_with("/work/cluster.yaml"), "{:?}", error.hints());
}

#[test]
fn a_file_that_is_not_utf_8_is_told_where() {
    let env = TestEnv::new();
    let path = env.work().join("cluster.yaml");
    std::fs::write(&path, b"name: demo\nenvironment: {A: \"\xe9t\xe9\"}\n").unwrap();
    let error = load(&path);
    assert!(error.causes()[0].ends_with("cluster.yaml:2:19: is not UTF-8"), "{:?}", error.causes());
    assert_eq!(error.hints(), ["save the file as UTF-8 and try again"]);
}

#[test]
fn a_huge_file_is_not_read_to_its_end() {
    let env = TestEnv::new();
    let path = env.work().join("cluster.yaml");
    std::fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
    assert_eq!(load(&path).causes(), ["it has more than 1 MiB: this is no spec"]);
}

fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Both readers of YAML read it and see the same, or [`spec::load`] would refuse it.
#[test]
fn every_example_is_read() {
    let mut read = 0;
    for entry in std::fs::read_dir(project("examples")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let loaded = spec::load(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let places = loaded.places;
            assert_eq!(places.position("name").1, 7, "{}: `name` is not at the margin", path.display());
            read += 1;
        }
    }
    assert!(read > 0, "no example was found");
}

#[test]
fn the_smallest_example_fits_two_cores() {
    let text = std::fs::read_to_string(project("examples/local.yaml")).unwrap();
    let spec = read(&text).unwrap().spec;
    let workers = &spec.ray.workers;
    assert_eq!((spec.ray.head.cpus, workers.count, workers.cpus), (0, Some(2), Some(1)));
}

/// Every name of a property in a schema, with the names below `$defs` that hold one.
fn properties(schema: &Value, names: &mut Vec<String>) {
    match schema {
        Value::Object(keys) => {
            if let Some(Value::Object(properties)) = keys.get("properties") {
                names.extend(properties.keys().cloned());
            }
            keys.values().for_each(|value| properties(value, names));
        }
        Value::Array(items) => items.iter().for_each(|item| properties(item, names)),
        _ => {}
    }
}

#[test]
fn the_reference_names_every_key() {
    let reference = std::fs::read_to_string(project("docs/reference/spec.md")).unwrap();
    let mut names = Vec::new();
    properties(&spec::schema().unwrap(), &mut names);
    assert!(names.contains(&"object_store_memory".to_owned()), "{names:?}");
    for name in names {
        let named = [format!("`{name}`"), format!(".{name}`")].iter().any(|form| reference.contains(form));
        assert!(named, "docs/reference/spec.md does not name `{name}`");
    }
}

#[test]
fn the_reference_says_the_defaults() {
    let reference = std::fs::read_to_string(project("docs/reference/spec.md")).unwrap();
    assert!(reference.contains(&format!("`{}`", spec::DEFAULT_RAY_VERSION)));
    for wait in ["`20m`", "`2m`", "`3m`", "`20s`"] {
        assert!(reference.contains(wait), "{wait}");
    }
}

#[test]
fn the_committed_schema_is_what_the_program_prints() {
    let env = TestEnv::new();
    let printed = env.run(&["schema"]).exits(0).stdout;
    let committed = std::fs::read_to_string(project("docs/reference/spec.schema.json")).unwrap();
    assert_eq!(printed, committed, "make it anew: gpucl schema > docs/reference/spec.schema.json");
}

#[test]
fn the_schema_is_one_line_of_json_where_that_is_asked_for() {
    let env = TestEnv::new();
    let printed = env.run(&["schema", "--output", "json"]).exits(0).stdout;
    assert_eq!(printed.lines().count(), 1);
    assert_eq!(serde_json::from_str::<Value>(&printed).unwrap(), spec::schema().unwrap());
}

#[test]
fn the_schema_says_what_editors_need() {
    let schema = spec::schema().unwrap();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(schema["additionalProperties"], json!(false));
    assert_eq!(schema["required"], json!(["name"]));
    assert!(schema["title"].is_string() && schema["description"].is_string());
    for (name, property) in schema["properties"].as_object().unwrap() {
        assert!(property["description"].is_string(), "{name} has no description");
    }
}

#[test]
fn the_schema_holds_the_settings_of_every_provider() {
    let schema = spec::schema_with(&[&HALL]).unwrap();
    let definitions = &schema["$defs"];
    let settings = &definitions["provider_hall"];
    assert_eq!(settings["properties"]["name"]["const"], "hall");
    assert_eq!(settings["required"], json!(["name"]));
    assert_eq!(settings["additionalProperties"], json!(false));
    assert_eq!(definitions["host_hall"]["properties"]["node"]["description"], "The host's name.");
    assert_eq!(definitions["ProviderChoice"]["anyOf"][0]["enum"], json!(["hall"]));
    assert_eq!(definitions["ProviderChoice"]["anyOf"][1]["$ref"], "#/$defs/provider_hall");
    assert_eq!(schema["allOf"][0]["then"]["properties"]["hosts"]["items"]["$ref"], "#/$defs/host_hall");
    // What a provider's schema defines has moved along, and is found where it is now.
    assert!(definitions["hall_Site"].is_object());
    let mut references = Vec::new();
    collect_references(&schema, &mut references);
    for reference in references {
        let name = reference.strip_prefix("#/$defs/").unwrap();
        assert!(definitions.get(name).is_some(), "{reference} points nowhere");
    }
}

fn collect_references(schema: &Value, references: &mut Vec<String>) {
    match schema {
        Value::Object(keys) => {
            references.extend(keys.get("$ref").and_then(Value::as_str).map(str::to_owned));
            keys.values().for_each(|value| collect_references(value, references));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_references(item, references)),
        _ => {}
    }
}
