//! What is ordinary in a compose file, and what other keys do.

use std::net::IpAddr;

use super::super::compose_text::Part;

/// The keys of a service that are ordinary whatever they hold.
pub(super) const ORDINARY: &[&str] = &[
    "attach",
    "cap_drop",
    "command",
    "configs",
    "depends_on",
    "domainname",
    "entrypoint",
    "environment",
    "expose",
    "healthcheck",
    "image",
    "init",
    "platform",
    "profiles",
    "pull_policy",
    "read_only",
    "restart",
    "scale",
    "secrets",
    "stdin_open",
    "stop_signal",
    "tmpfs",
    "tty",
    "user",
    "working_dir",
];

/// The ordinary keys of a service that may be given to gpucl's own as well.
pub(super) const RESOURCES: &[&str] = &[
    "cpu_count",
    "cpu_percent",
    "cpu_period",
    "cpu_quota",
    "cpu_shares",
    "cpus",
    "cpuset",
    "mem_limit",
    "mem_reservation",
    "mem_swappiness",
    "memswap_limit",
    "pids_limit",
    "shm_size",
    "stop_grace_period",
    "ulimits",
];

/// What else may be given to gpucl's own services.
pub(super) const ADDED: &[&str] = &["depends_on", "deploy", "environment", "expose", "labels", "logging"];

/// The beginnings of variables that gpucl's own services rely on, or that choose which programs run in them.
pub(super) const FIXED_VARIABLES: &[&str] = &["AWS_", "GF_", "JUPYTER", "LD_", "MINIO_", "NVIDIA_", "PYTHON", "RAY_"];

/// What other keys do, for those that are common or dangerous.
pub(super) const EFFECTS: &[(&str, &str)] = &[
    ("build", "is built from a folder of its host"),
    ("cap_add", "has Linux capabilities"),
    ("cgroup", "shares control groups of its host"),
    ("cgroup_parent", "leaves the control group that gpucl gives to containers"),
    ("credential_spec", "reads credentials of its host"),
    ("develop", "watches files of its host"),
    ("device_cgroup_rules", "may use devices of its host"),
    ("devices", "has devices of its host"),
    ("driver_opts", "is at a place that its options choose, such as a folder of the host"),
    ("env_file", "reads a file of its host"),
    ("environment", "has a variable of its host"),
    ("extends", "has settings from a file of its host"),
    ("external", "belongs to something else on its host"),
    ("extra_hosts", "has other addresses for names"),
    ("file", "is a file of its host"),
    ("group_add", "has groups of its host"),
    ("ipc", "shares memory with other processes of its host"),
    ("name", "may belong to something else on its host"),
    ("network_mode", "is on another network, such as its host's"),
    ("pid", "sees other processes of its host"),
    ("privileged", "runs privileged, as root of its host"),
    ("provider", "runs a program of its host"),
    ("runtime", "runs with another runtime of its host"),
    ("security_opt", "has other limits than containers usually have"),
    ("sysctls", "changes settings of the kernel"),
    ("use_api_socket", "has the socket of Docker, as good as root of its host"),
    ("userns_mode", "has the users of its host"),
    ("uts", "shares the name of its host"),
    ("volumes_from", "has the folders of another container"),
];

/// Whether gpucl may have a service or a node of this name, by its key or its host name.
pub(super) fn is_ours(name: &str) -> bool {
    const SINGLE: &[&str] = &["head", "objectstore", "object-store", "prometheus", "grafana", "jupyter"];
    let name = name.to_lowercase();
    let is_numbered = |kind: &str| {
        let number = name.strip_prefix(kind);
        number
            .is_some_and(|rest| !rest.is_empty() && rest.chars().all(|letter| letter == '-' || letter.is_ascii_digit()))
    };
    SINGLE.contains(&name.as_str()) || name.starts_with("gpucl") || is_numbered("worker") || is_numbered("nodeexporter")
}

/// Whether it is one of these texts.
pub(super) fn is_one_of(value: &Part, texts: &[&str]) -> bool {
    matches!(value, Part::Text(text) if texts.contains(&text.as_str()))
}

/// Whether only the host itself has this address.
pub(super) fn is_loopback(host: &str) -> bool {
    host.parse::<IpAddr>().is_ok_and(|host| host.is_loopback())
}

/// Whether it is the name of a volume: a single letter would be a drive of Windows, all else a path.
pub(super) fn is_volume(source: &str) -> bool {
    source.len() > 1
        && source.starts_with(|letter: char| letter.is_ascii_alphanumeric())
        && source.chars().all(|letter| letter.is_ascii_alphanumeric() || "_.-".contains(letter))
}
