//! Validation of worker groups: their names, numbers, hosts, resources and labels.

use std::collections::BTreeMap;

use crate::provider::ProviderKind;
use crate::spec::place::{Problem, item, join};
use crate::spec::{GpuProof, Memory, Per, Spec, WorkerGroup};
use crate::util::human;

/// Ray's maximum amount of a resource.
const MOST_RESOURCE: f64 = 100e12;
/// Ray's minimum of shared memory for objects, in bytes.
const LEAST_OBJECT_STORE: u64 = 75 << 20;
/// The most workers of a cluster.
const MOST_WORKERS: u32 = 256;
/// The maximum length of a group's name, in characters.
const LONGEST_NAME: usize = 20;
/// Resources with their own key in the spec.
const OWN_KEYS: &[(&str, &str)] =
    &[("CPU", "cpus"), ("GPU", "gpus"), ("memory", "memory"), ("object_store_memory", "object_store_memory")];

/// Finds all problems of the worker groups.
pub(super) fn workers(spec: &Spec, problems: &mut Vec<Problem>) {
    let groups = spec.ray.workers.groups();
    let all: u32 = groups.iter().map(|group| group.count.unwrap_or_default()).sum();
    if groups.len() > 1 && all > MOST_WORKERS {
        problems
            .push(Problem::new("ray.workers", format!("has {all} workers in all, may have at most {MOST_WORKERS}")));
    }
    names(spec, problems);
    for (index, group) in groups.iter().enumerate() {
        let path = spec.ray.workers.path(index);
        object_store(&path, group.object_store_memory, problems);
        number(spec, &path, group, problems);
        hosts(spec, &path, group, problems);
        resources(&path, group, problems);
        labels(&path, group, problems);
    }
}

/// Refuses less shared memory for objects than Ray takes.
pub(super) fn object_store(path: &str, memory: Option<Memory>, problems: &mut Vec<Problem>) {
    if let Some(memory) = memory.filter(|memory| memory.0 < LEAST_OBJECT_STORE) {
        let message = format!("{} is too little: Ray needs at least 75MiB", human::bytes(memory.0));
        problems.push(Problem::new(join(path, "object_store_memory"), message));
    }
}

fn names(spec: &Spec, problems: &mut Vec<Problem>) {
    let groups = spec.ray.workers.groups();
    let mut met: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, group) in groups.iter().enumerate() {
        let path = join(&spec.ray.workers.path(index), "name");
        let Some(name) = group.name.as_deref() else {
            if groups.len() > 1 {
                let problem = Problem::new(path, "is missing");
                problems.push(problem.note("each of several groups has a name, for example: `name: big`"));
            }
            continue;
        };
        if !is_name(name) {
            let rule = format!("use 1 to {LONGEST_NAME} of a-z, 0-9 and -, from a letter to a letter or digit");
            problems.push(Problem::new(path, format!("`{name}` is not a group's name: {rule}")));
        } else if name == "head" {
            problems.push(Problem::new(path, "`head` is the name of the head's own group"));
        } else if let Some(first) = met.get(name) {
            let other = spec.ray.workers.path(*first);
            problems.push(Problem::new(path, format!("`{name}` is already the name of {other}")));
        } else {
            met.insert(name, index);
        }
    }
}

fn is_name(name: &str) -> bool {
    let is_inner = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    let is_short = (1..=LONGEST_NAME).contains(&name.len());
    is_short
        && name.starts_with(|letter: char| letter.is_ascii_lowercase())
        && name.chars().all(is_inner)
        && is_label(name)
}

/// Refuses limits of a group that contradict each other, or have no autoscaler.
pub(super) fn limits(spec: &Spec, kind: ProviderKind, problems: &mut Vec<Problem>) {
    for (index, group) in spec.ray.workers.groups().iter().enumerate() {
        let path = spec.ray.workers.path(index);
        let given = [("min", group.min), ("max", group.max)].into_iter().find(|(_, value)| value.is_some());
        if let (Some((key, _)), ProviderKind::Host) = (given, kind) {
            problems.push(
                Problem::new(join(&path, key), "has no effect: only a platform adds and removes workers")
                    .note("`count` sets the number of workers; `provider: kubernetes` is a platform"),
            );
        }
        let (count, min, max) = group.limits();
        if min > max || (group.count.is_some() && group.count != Some(count)) {
            let key = if group.max.is_some() { "max" } else { "min" };
            problems.push(Problem::new(join(&path, key), "contradicts the other numbers: min <= count <= max"));
        }
    }
}

fn number(spec: &Spec, path: &str, group: &WorkerGroup, problems: &mut Vec<Problem>) {
    if group.count.is_some() && group.per.is_some() {
        problems.push(
            Problem::new(join(path, "per"), format!("contradicts {path}.count"))
                .note("`count` sets the number of workers, `per` derives it: keep one of the two"),
        );
    }
    if group.per == Some(Per::Gpu) {
        if let Some(gpus) = group.gpus.filter(|gpus| *gpus != 1) {
            let message = format!("{gpus} contradicts `per: gpu`, which gives each worker one");
            problems.push(
                Problem::new(join(path, "gpus"), message).note("leave `gpus` out, or use `per: host` or `count`"),
            );
        }
        if spec.gpu == GpuProof::Declared {
            problems.push(
                Problem::new("gpu", format!("`declared` contradicts {path}.per: gpu"))
                    .note("GPUs that are only declared cannot be counted: use `count` and `gpus` instead of `per`"),
            );
        }
    }
}

fn hosts(spec: &Spec, path: &str, group: &WorkerGroup, problems: &mut Vec<Problem>) {
    let mut met = Vec::new();
    for (index, choice) in group.hosts.iter().flatten().enumerate() {
        let path = item(&join(path, "hosts"), index);
        let meant = choice.among(&spec.hosts);
        match meant.as_slice() {
            [] => problems.push(
                Problem::new(
                    path,
                    format!("is none of the hosts: the spec has {}", human::count(spec.hosts.len(), "host")),
                )
                .note("name a host by its number, from 0, or as it is named in `hosts`"),
            ),
            [one] if met.contains(one) => problems.push(Problem::new(path, "names a host that is already in the list")),
            [one] => met.push(*one),
            _ => problems.push(Problem::new(path, "is the name of several hosts").note("use their numbers, from 0")),
        }
    }
}

fn resources(path: &str, group: &WorkerGroup, problems: &mut Vec<Problem>) {
    for (name, amount) in &group.resources {
        let below = join(&join(path, "resources"), name);
        if let Some((_, key)) = OWN_KEYS.iter().find(|(own, _)| own == name) {
            problems.push(Problem::of_key(below, format!("has its own key: {path}.{key}")));
        } else if name.is_empty() || name.starts_with("node:") || name.chars().any(char::is_control) {
            problems.push(Problem::of_key(below, "cannot name a custom resource: Ray reserves it"));
        } else if !(0.0..=MOST_RESOURCE).contains(amount) || amount.fract() != 0.0 {
            problems.push(Problem::new(
                below,
                format!("{amount} is not an amount: Ray takes whole numbers from 0 to 1e14"),
            ));
        }
    }
}

/// Ray's labels follow the rules of Kubernetes.
fn labels(path: &str, group: &WorkerGroup, problems: &mut Vec<Problem>) {
    for (key, value) in &group.labels {
        let path = join(&join(path, "labels"), key);
        let (prefix, name) = key.rsplit_once('/').map_or((None, key.as_str()), |(prefix, name)| (Some(prefix), name));
        if key.starts_with("ray.io/") {
            problems.push(Problem::of_key(path, "labels under `ray.io/` are reserved for Ray"));
        } else if key.starts_with("gpucl.dev/") {
            problems.push(Problem::of_key(path, "labels under `gpucl.dev/` are set by gpucl itself"));
        } else if !is_label(name) || prefix.is_some_and(|prefix| prefix.len() > 253 || !prefix.split('.').all(is_label))
        {
            problems.push(
                Problem::of_key(path, "is not a label: use 1 to 63 letters, digits, `.`, `-` and `_`")
                    .note("it must begin and end with a letter or digit; a domain and `/` may precede it"),
            );
        } else if !value.is_empty() && !is_label(value) {
            problems.push(
                Problem::new(path, "is not a label value: use up to 63 letters, digits, `.`, `-` and `_`")
                    .note("it must begin and end with a letter or digit"),
            );
        }
    }
}

fn is_label(text: &str) -> bool {
    let is_inner = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_');
    let is_edge = |letter: char| letter.is_ascii_alphanumeric();
    (1..=63).contains(&text.len()) && text.chars().all(is_inner) && text.starts_with(is_edge) && text.ends_with(is_edge)
}
