//! What a spec means: values that are impossible, fields that contradict each other, and what the provider cannot do.
//!
//! A provider's settings and its `hosts` entries are checked by the provider's own strict types. The paths of its errors
//! are relative: one that begins with `hosts[` is a host's entry as it stands; every other one is below `provider.`, and
//! an empty one is the provider as a whole.

use super::place::{Problem, is_within, join};
use super::walk::unknown_key;
use super::{GpuProof, Memory, Per, ProviderChoice, Spec};
use crate::error::Result;
use crate::provider::Factory;
use crate::util::human;

/// The oldest Ray that asks for a token on all that it serves.
const OLDEST_RAY: [u32; 3] = [2, 54, 0];
/// What Ray takes at least as shared memory for objects.
const LEAST_OBJECT_STORE: u64 = 75 << 20;
/// The most that Ray takes of a resource.
const MOST_RESOURCE: f64 = 100e12;
/// Variables that gpucl sets itself, or that would undo what it sets.
const OUR_VARIABLES: &[&str] = &[
    "AUTOSCALER_METRIC_PORT",
    "CUDA_VISIBLE_DEVICES",
    "DASHBOARD_METRIC_PORT",
    "HIP_VISIBLE_DEVICES",
    "PATH",
    "RAY_ADDRESS",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER",
    "RAY_OVERRIDE_LABELS",
    "RAY_OVERRIDE_RESOURCES",
    "ROCR_VISIBLE_DEVICES",
    "SPT_NOENV",
    "TMPDIR",
    "VIRTUAL_ENV",
];
/// How names of variables of ours begin.
const OUR_PREFIXES: &[&str] = &["GPUCL_", "RAY_AUTH_"];
/// Resources that have a key of their own.
const OWN_KEYS: &[(&str, &str)] =
    &[("CPU", "cpus"), ("GPU", "gpus"), ("memory", "memory"), ("object_store_memory", "object_store_memory")];

/// Finds a provider by its name.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Result<&'static dyn Factory>;

/// Everything that is wrong with the meaning of a spec.
pub(super) fn validate(spec: &Spec, lookup: Lookup<'_>) -> Vec<Problem> {
    let mut problems = Vec::new();
    if spec.name.is_reserved() {
        problems.push(
            Problem::new("name", format!("`{}` is no name for a cluster: gpucl keeps the word for leases", spec.name))
                .note("leases that `gpucl lease` makes have it in their tags"),
        );
    }
    version(&spec.ray.version, &mut problems);
    object_store("ray.head", spec.ray.head.object_store_memory, &mut problems);
    object_store("ray.workers", spec.ray.workers.object_store_memory, &mut problems);
    workers(spec, &mut problems);
    resources(spec, &mut problems);
    labels(spec, &mut problems);
    environment(spec, &mut problems);
    playbooks(spec, &mut problems);
    super::validate_services::services(spec, &mut problems);
    provider(spec, lookup, &mut problems);
    problems
}

fn version(version: &str, problems: &mut Vec<Problem>) {
    let path = "ray.version";
    let parts: Vec<&str> = version.split('.').collect();
    let is_number = |part: &&str| part.len() <= 6 && part.bytes().all(|byte| byte.is_ascii_digit());
    let numbers: Option<Vec<u32>> =
        parts.iter().map(|part| Some(*part).filter(is_number).and_then(|part| part.parse().ok())).collect();
    match numbers.as_deref() {
        Some([_, _, _]) if numbers.as_deref() < Some(&OLDEST_RAY) => problems.push(
            Problem::new(path, format!("Ray {version} is too old: 2.54.0 is the oldest"))
                .note("older ones cannot ask for a token on every port"),
        ),
        Some([_, _, _]) => {}
        _ => problems.push(
            Problem::new(path, format!("`{version}` is no version of Ray: it takes three numbers"))
                .note(format!("for example: {}", super::model::DEFAULT_RAY_VERSION)),
        ),
    }
}

fn object_store(path: &str, memory: Option<Memory>, problems: &mut Vec<Problem>) {
    if let Some(memory) = memory.filter(|memory| memory.0 < LEAST_OBJECT_STORE) {
        let message = format!("{} is too little: Ray takes 75MiB or more", human::bytes(memory.0));
        problems.push(Problem::new(join(path, "object_store_memory"), message));
    }
}

fn workers(spec: &Spec, problems: &mut Vec<Problem>) {
    let workers = &spec.ray.workers;
    if workers.count.is_some() && workers.per.is_some() {
        problems.push(
            Problem::new("ray.workers.per", "contradicts ray.workers.count")
                .note("`count` says how many workers there are, `per` has them counted: keep one of the two"),
        );
    }
    if workers.per == Some(Per::Gpu) {
        if let Some(gpus) = workers.gpus.filter(|gpus| *gpus != 1) {
            problems.push(
                Problem::new("ray.workers.gpus", format!("{gpus} contradicts `per: gpu`, which gives each worker one"))
                    .note("leave `gpus` out, or use `per: host` or `count`"),
            );
        }
        if spec.gpu == GpuProof::Declared {
            problems.push(
                Problem::new("gpu", "`declared` contradicts ray.workers.per: gpu")
                    .note("GPUs that are only declared cannot be counted: write `count` and `gpus` instead of `per`"),
            );
        }
    }
}

fn resources(spec: &Spec, problems: &mut Vec<Problem>) {
    for (name, amount) in &spec.ray.workers.resources {
        let path = join("ray.workers.resources", name);
        if let Some((_, key)) = OWN_KEYS.iter().find(|(own, _)| own == name) {
            problems.push(Problem::of_key(path, format!("has a key of its own: ray.workers.{key}")));
        } else if name.is_empty() || name.starts_with("node:") || name.chars().any(char::is_control) {
            problems.push(Problem::of_key(path, "is no name for a resource of yours: Ray keeps it for itself"));
        } else if !(0.0..=MOST_RESOURCE).contains(amount) || amount.fract() != 0.0 {
            problems.push(Problem::new(path, format!("{amount} is no amount: Ray takes whole numbers from 0 to 1e14")));
        }
    }
}

/// Labels follow the rules of Kubernetes, as Ray has it.
fn labels(spec: &Spec, problems: &mut Vec<Problem>) {
    for (key, value) in &spec.ray.workers.labels {
        let path = join("ray.workers.labels", key);
        let (prefix, name) = key.rsplit_once('/').map_or((None, key.as_str()), |(prefix, name)| (Some(prefix), name));
        if key.starts_with("ray.io/") {
            problems.push(Problem::of_key(path, "labels under `ray.io/` are Ray's own"));
        } else if !is_label(name) || prefix.is_some_and(|prefix| prefix.len() > 253 || !prefix.split('.').all(is_label))
        {
            problems.push(
                Problem::of_key(path, "is no label: it takes 1 to 63 letters, digits, `.`, `-` and `_`")
                    .note("it begins and ends with a letter or digit; a domain and `/` may stand before it"),
            );
        } else if !value.is_empty() && !is_label(value) {
            problems.push(
                Problem::new(path, "has no value for a label: it takes up to 63 letters, digits, `.`, `-` and `_`")
                    .note("it begins and ends with a letter or digit"),
            );
        }
    }
}

fn is_label(text: &str) -> bool {
    let is_inner = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_');
    let is_edge = |letter: char| letter.is_ascii_alphanumeric();
    (1..=63).contains(&text.len()) && text.chars().all(is_inner) && text.starts_with(is_edge) && text.ends_with(is_edge)
}

fn environment(spec: &Spec, problems: &mut Vec<Problem>) {
    for (name, value) in &spec.environment {
        let path = join("environment", name);
        let is_name = !name.is_empty()
            && !name.starts_with(|letter: char| letter.is_ascii_digit())
            && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
        if !is_name {
            problems.push(Problem::of_key(path, "is no name of a variable: it takes letters, digits and `_`"));
        } else if OUR_VARIABLES.contains(&name.as_str()) || OUR_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
            problems.push(Problem::of_key(path, "is set by gpucl itself").note("leave it out"));
        } else if value.chars().any(|letter| letter.is_control() && letter != '\t') {
            problems.push(Problem::new(path, "has a line break or another control character, must be one line"));
        }
    }
}

/// They become lines of files that root reads on the hosts, such as a unit of systemd: one line stays one line.
fn playbooks(spec: &Spec, problems: &mut Vec<Problem>) {
    for (name, variables) in &spec.playbooks {
        for (variable, value) in variables {
            if value.chars().any(char::is_control) {
                let path = join(&join("playbooks", name), variable);
                problems.push(Problem::new(path, "has a line break or another control character, must be one line"));
            }
        }
    }
}

fn provider(spec: &Spec, lookup: Lookup<'_>, problems: &mut Vec<Problem>) {
    let path = match &spec.provider {
        ProviderChoice::Name(_) => "provider",
        ProviderChoice::Full { .. } => "provider.name",
    };
    let name = spec.provider.name();
    let factory = match lookup(name) {
        Ok(factory) => factory,
        Err(error) => {
            let cause = error.causes().first().map_or("cannot be used", String::as_str);
            let problem = Problem::new(path, format!("`{name}`: {cause}"));
            problems.push(error.hints().iter().fold(problem, |problem, hint| problem.note(hint)));
            return;
        }
    };
    let capability = factory.capability();
    if !capability.runtimes.contains(&spec.runtime) {
        let there: Vec<&str> = capability.runtimes.iter().map(|runtime| runtime.name()).collect();
        let runtime = spec.runtime.name();
        problems.push(
            Problem::new("runtime", format!("the runtime `{runtime}` is not available on provider `{name}`"))
                .note(format!("available there: {}", there.join(", "))),
        );
    }
    if let Some(most) = capability.most_hosts.filter(|most| spec.hosts.len() > *most) {
        let (there, most) = (human::count(spec.hosts.len(), "host"), human::count(most, "host"));
        problems.push(Problem::new("hosts", format!("{there}, but provider `{name}` has at most {most}")));
    }
    for error in factory.check(&spec.provider.settings(), &spec.hosts) {
        let path = match error.path.as_str() {
            "" => "provider".to_owned(),
            path if path.starts_with("hosts[") => path.to_owned(),
            path => format!("provider.{path}"),
        };
        let key = path.rsplit('.').next().unwrap_or_default().to_owned();
        problems.push(match error.known.as_slice() {
            [] if error.message == "unknown key" => Problem::of_key(path, error.message).note("no keys are known here"),
            [] => Problem::new(path, error.message),
            known => unknown_key(Problem::of_key(path, ""), &key, known.iter().map(String::as_str)),
        });
    }
}

/// Drops what is only there because something else is wrong already.
pub(super) fn without_what_follows(found: Vec<Problem>, before: &[Problem]) -> Vec<Problem> {
    let wrong: Vec<&str> = before
        .iter()
        .flat_map(|problem| [Some(problem.path.as_str()), problem.meant.as_deref()])
        .flatten()
        .filter(|path| !path.is_empty())
        .collect();
    // Without its provider nobody can tell what a spec may ask of it.
    let of_provider: &[&str] = match wrong.iter().any(|path| is_within(path, "provider")) {
        true => &["provider", "hosts", "runtime"],
        false => &[],
    };
    let follows = |problem: &Problem| wrong.iter().chain(of_provider).any(|above| is_within(&problem.path, above));
    found.into_iter().filter(|problem| !follows(problem)).collect()
}
