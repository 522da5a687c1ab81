//! Values that are impossible, fields that contradict each other, and settings that the provider does not support.

use super::refuses;

#[test]
fn the_reserved_word_lease_is_not_a_name() {
    refuses(
        "name: lease\n",
        r"
  cluster.yaml:1:7: name: `lease` cannot be a cluster name: it is reserved for leases
     1 | name: lease
       |       ^^^^^
  leases made by `gpucl lease` have it in their tags
",
    );
}

#[test]
fn a_version_of_two_numbers_is_refused() {
    refuses(
        "name: demo\nray:\n  version: '2.60'\n",
        r"
  cluster.yaml:3:12: ray.version: `2.60` is not a Ray version: use three numbers
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
  cluster.yaml:3:12: ray.version: Ray 2.53.9 is too old: the oldest supported version is 2.54.0
     3 |   version: 2.53.9
       |            ^^^^^^
  older versions cannot require a token on every port
",
    );
}

#[test]
fn a_malformed_amount_is_refused() {
    refuses(
        "name: demo\nray:\n  workers:\n    memory: lots\n",
        r"
  cluster.yaml:4:13: ray.workers.memory: `lots` is not an amount of memory: use a form such as `512MiB` or `2GiB`
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
  cluster.yaml:4:26: ray.head.object_store_memory: 74.0 MiB is too little: Ray needs at least 75MiB
     4 |     object_store_memory: 74MiB
       |                          ^^^^^
",
    );
}

#[test]
fn a_malformed_duration_is_refused() {
    refuses(
        "name: demo\ntimeouts:\n  start: 90\n  ready: soon\n  stop: 0s\n  prepare: 200h\n",
        r"
  cluster.yaml:3:10: timeouts.start: is the number 90, must be text
     3 |   start: 90
       |          ^^
  for example: 90s

  cluster.yaml:4:10: timeouts.ready: `soon` is not a duration: use a form such as `90s`, `5m` or `1h 30m`
     4 |   ready: soon
       |          ^^^^

  cluster.yaml:5:9: timeouts.stop: `0s` is not a duration: use a form such as `90s`, `5m` or `1h 30m`
     5 |   stop: 0s
       |         ^^

  cluster.yaml:6:12: timeouts.prepare: `200h` is too long: the maximum is 168h
     6 |   prepare: 200h
       |            ^^^^
",
    );
}

#[test]
fn reserved_variables_are_refused() {
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
fn an_invalid_variable_name_is_refused() {
    refuses(
        "name: demo\nenvironment:\n  MY-OWN: '1'\n  TEXT: \"two\\nlines\"\n",
        r#"
  cluster.yaml:3:3: environment.MY-OWN: is not a variable name: use letters, digits and `_`
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
  cluster.yaml:5:7: ray.workers.resources.GPU: has its own key: ray.workers.gpus
     5 |       GPU: 1
       |       ^^^

  cluster.yaml:6:13: ray.workers.resources.slot: 0.5 is not an amount: Ray takes whole numbers from 0 to 1e14
     6 |       slot: 0.5
       |             ^^^

  cluster.yaml:8:7: ray.workers.labels."ray.io/zone": labels under `ray.io/` are reserved for Ray
     8 |       ray.io/zone: a
       |       ^^^^^^^^^^^

  cluster.yaml:9:13: ray.workers.labels.zone: is not a label value: use up to 63 letters, digits, `.`, `-` and `_`
     9 |       zone: '-a'
       |             ^^^^
  it must begin and end with a letter or digit
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
  `count` sets the number of workers, `per` derives it: keep one of the two
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
  GPUs that are only declared cannot be counted: use `count` and `gpus` instead of `per`
",
    );
}

#[test]
fn a_group_of_workers_is_refused_at_its_own_place() {
    refuses(
        "name: demo\ngpu: declared\nray:\n  workers:\n    - name: a\n      count: 2\n      per: host\n    - name: b\n      per: gpu\n      gpus: 2\n      \
         object_store_memory: 1MiB\n      resources: {CPU: 1}\n      labels: {gpucl.dev/group: x}\n",
        r#"
  cluster.yaml:2:6: gpu: `declared` contradicts ray.workers[1].per: gpu
     2 | gpu: declared
       |      ^^^^^^^^
  GPUs that are only declared cannot be counted: use `count` and `gpus` instead of `per`

  cluster.yaml:7:12: ray.workers[0].per: contradicts ray.workers[0].count
     7 |       per: host
       |            ^^^^
  `count` sets the number of workers, `per` derives it: keep one of the two

  cluster.yaml:10:13: ray.workers[1].gpus: 2 contradicts `per: gpu`, which gives each worker one
    10 |       gpus: 2
       |             ^
  leave `gpus` out, or use `per: host` or `count`

  cluster.yaml:11:28: ray.workers[1].object_store_memory: 1.0 MiB is too little: Ray needs at least 75MiB
    11 |       object_store_memory: 1MiB
       |                            ^^^^

  cluster.yaml:12:19: ray.workers[1].resources.CPU: has its own key: ray.workers[1].cpus
    12 |       resources: {CPU: 1}
       |                   ^^^

  cluster.yaml:13:16: ray.workers[1].labels."gpucl.dev/group": labels under `gpucl.dev/` are set by gpucl itself
    13 |       labels: {gpucl.dev/group: x}
       |                ^^^^^^^^^^^^^^^
"#,
    );
}

#[test]
fn each_of_several_groups_has_a_name_of_its_own() {
    refuses(
        "name: demo\nray:\n  workers:\n    - {count: 1}\n    - {name: Big}\n    - {name: a-}\n    - {name: a}\n    - {name: a}\n    - {name: head}\n",
        r"
  cluster.yaml:4:7: ray.workers[0].name: is missing
     4 |     - {count: 1}
       |       ^
  each of several groups has a name, for example: `name: big`

  cluster.yaml:5:14: ray.workers[1].name: `Big` is not a group's name: use 1 to 20 of a-z, 0-9 and -, from a letter to a letter or digit
     5 |     - {name: Big}
       |              ^^^

  cluster.yaml:6:14: ray.workers[2].name: `a-` is not a group's name: use 1 to 20 of a-z, 0-9 and -, from a letter to a letter or digit
     6 |     - {name: a-}
       |              ^^

  cluster.yaml:8:14: ray.workers[4].name: `a` is already the name of ray.workers[3]
     8 |     - {name: a}
       |              ^

  cluster.yaml:9:14: ray.workers[5].name: `head` is the name of the head's own group
     9 |     - {name: head}
       |              ^^^^
",
    );
}

#[test]
fn a_groups_hosts_are_hosts_of_the_spec() {
    refuses(
        "name: demo\nprovider: hall\nhosts: [{node: a}, {node: a}]\nray:\n  workers:\n    hosts:\n      - 0\n      - host-0\n      - a\n      - 3\n      - c\n      - 1.5\n",
        r"
  cluster.yaml:12:9: ray.workers.hosts[5]: is the number 1.5, must be a whole number or text
    12 |       - 1.5
       |         ^^^
",
    );
    refuses(
        "name: demo\nprovider: hall\nhosts: [{node: a}, {node: a}]\nray:\n  workers:\n    hosts:\n      - 0\n      - host-0\n      - a\n      - 3\n      - c\n",
        r"
  cluster.yaml:8:9: ray.workers.hosts[1]: names a host that is already in the list
     8 |       - host-0
       |         ^^^^^^

  cluster.yaml:9:9: ray.workers.hosts[2]: is the name of several hosts
     9 |       - a
       |         ^
  use their numbers, from 0

  cluster.yaml:10:9: ray.workers.hosts[3]: is none of the hosts: the spec has 2 hosts
    10 |       - 3
       |         ^
  name a host by its number, from 0, or as it is named in `hosts`

  cluster.yaml:11:9: ray.workers.hosts[4]: is none of the hosts: the spec has 2 hosts
    11 |       - c
       |         ^
  name a host by its number, from 0, or as it is named in `hosts`
",
    );
}

#[test]
fn all_groups_together_have_at_most_256_workers() {
    refuses(
        "name: demo\nray:\n  workers:\n    - {name: a, count: 200}\n    - {name: b, count: 57}\n",
        r"
  cluster.yaml:3:3: ray.workers: has 257 workers in all, may have at most 256
     3 |   workers:
       |   ^^^^^^^
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
        r#"
  cluster.yaml:4:11: hosts[1].node: is the number 7, must be text
     4 |   - node: 7
       |           ^
  in quotes it is text: "7"
"#,
    );
}

/// It would be a line more of a file that root reads on the hosts.
#[test]
fn a_playbooks_setting_of_two_lines_is_refused() {
    refuses(
        "name: demo\nplaybooks:\n  base: {http_proxy: \"http://p:3128\\nExecStartPre=id\"}\n",
        r#"
  cluster.yaml:3:22: playbooks.base.http_proxy: has a line break or another control character, must be one line
     3 |   base: {http_proxy: "http://p:3128\nExecStartPre=id"}
       |                      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
"#,
    );
}

#[test]
fn all_errors_are_reported_at_once() {
    refuses(
        "name: Demo\nprovidr: local\nruntime: docker\nray:\n  version: '2'\n  workers: {count: 2, per: gpu, cpus: many}\n",
        r"
  cluster.yaml:1:7: name: `Demo` is not a cluster name: use 1 to 20 of a-z, 0-9 and -, beginning with a letter
     1 | name: Demo
       |       ^^^^

  cluster.yaml:2:1: providr: unknown key
     2 | providr: local
       | ^^^^^^^
  did you mean `provider`?

  cluster.yaml:5:12: ray.version: `2` is not a Ray version: use three numbers
     5 |   version: '2'
       |            ^^^
  for example: 2.60.0

  cluster.yaml:6:28: ray.workers.per: contradicts ray.workers.count
     6 |   workers: {count: 2, per: gpu, cpus: many}
       |                            ^^^
  `count` sets the number of workers, `per` derives it: keep one of the two

  cluster.yaml:6:39: ray.workers.cpus: is the text `many`, must be a whole number
     6 |   workers: {count: 2, per: gpu, cpus: many}
       |                                       ^^^^
",
    );
}
