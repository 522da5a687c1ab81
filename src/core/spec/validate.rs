//! Semantic validation: impossible values, contradictory fields, and what the provider cannot do.
//!
//! A provider checks its settings and `hosts` entries with its own strict types. A path in its errors that begins with
//! `hosts[` is used as is; any other is relative to `provider.`, and an empty one means the provider as a whole.

mod data;
mod end;
mod files;
pub(super) mod mounts;
mod serve;
mod services;
pub(super) mod setup;
mod workers;

use super::place::{Problem, is_within, item, join};
use super::variables::is_our_variable;
use super::walk::unknown_key;
use super::{ProviderChoice, Spec, same_name};
use crate::provider::{Lookup, ProviderKind};
use crate::util::{human, variable};

/// The oldest Ray version that requires a token on all its ports.
const OLDEST_RAY: [u32; 3] = [2, 54, 0];

/// All semantic problems of a spec.
pub(super) fn validate(spec: &Spec, lookup: Lookup<'_>) -> Vec<Problem> {
    let mut problems = Vec::new();
    if spec.name.is_reserved() {
        problems.push(
            Problem::new("name", format!("`{}` cannot be a cluster name: it is reserved for leases", spec.name))
                .note("leases made by `gpucl lease` have it in their tags"),
        );
    }
    version(&spec.ray.version, &mut problems);
    workers::object_store("ray.head", spec.ray.head.object_store_memory, &mut problems);
    workers::workers(spec, &mut problems);
    environment(spec, &mut problems);
    playbooks(spec, &mut problems);
    outputs(spec, &mut problems);
    data::data(spec, &mut problems);
    end::end(spec, &mut problems);
    files::files(spec, &mut problems);
    services::services(spec, &mut problems);
    serve::serve(spec, &mut problems);
    mounts::mounts(spec, lookup, &mut problems);
    setup::setup(spec, &mut problems);
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
            Problem::new(path, format!("Ray {version} is too old: the oldest supported version is 2.54.0"))
                .note("older versions cannot require a token on every port"),
        ),
        Some([_, _, _]) => {}
        _ => problems.push(
            Problem::new(path, format!("`{version}` is not a Ray version: use three numbers"))
                .note(format!("for example: {}", super::model::DEFAULT_RAY_VERSION)),
        ),
    }
}

fn environment(spec: &Spec, problems: &mut Vec<Problem>) {
    for (name, value) in &spec.environment {
        let path = join("environment", name);
        let is_name = !name.is_empty()
            && !name.starts_with(|letter: char| letter.is_ascii_digit())
            && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
        if !is_name {
            problems.push(Problem::of_key(path, "is not a variable name: use letters, digits and `_`"));
        } else if is_our_variable(name) {
            problems.push(Problem::of_key(path, "is set by gpucl itself").note("leave it out"));
        } else if value.chars().any(|letter| letter.is_control() && letter != '\t') {
            problems.push(Problem::new(path, "has a line break or another control character, must be one line"));
        } else if let Some(fault) = variable::fault(name, value) {
            problems.push(Problem::new(path, fault));
        }
    }
}

/// Settings become lines of files that root reads on the hosts, such as systemd units, so each must stay one line.
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

/// Each is copied to one folder under its own name.
fn outputs(spec: &Spec, problems: &mut Vec<Problem>) {
    if let Some((index, first)) = same_name(&spec.outputs) {
        let message = format!("has the same name as `{first}`, which it would replace when both are fetched");
        problems.push(Problem::new(item("outputs", index), message).note("name the folders that they are in"));
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
    workers::limits(spec, capability.kind, problems);
    if spec.has_existing_prometheus() && capability.kind == ProviderKind::Host {
        problems.push(
            Problem::new("services.prometheus", "`existing` is for clusters on a platform, which has one")
                .note("on hosts Prometheus is one of the cluster's own, with `runtime: docker`"),
        );
    }
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
        let known = error.known.iter().map(String::as_str);
        problems.push(match error.message.as_str() {
            "unknown key" => unknown_key(Problem::of_key(path, ""), &key, known),
            _ if error.known.is_empty() => Problem::new(path, error.message),
            _ => Problem::new(path, error.message).note(format!("known here: {}", error.known.join(", "))),
        });
    }
}

/// Drops problems that only follow from others.
pub(super) fn without_what_follows(found: Vec<Problem>, before: &[Problem]) -> Vec<Problem> {
    let wrong: Vec<&str> = before
        .iter()
        .flat_map(|problem| [Some(problem.path.as_str()), problem.meant.as_deref()])
        .flatten()
        .filter(|path| !path.is_empty())
        .collect();
    // Without a provider, the keys that depend on it cannot be checked.
    let of_provider: &[&str] = match wrong.iter().any(|path| *path == "provider" || is_within(path, "provider.name")) {
        true => &["provider", "hosts", "runtime"],
        false => &[],
    };
    let follows = |problem: &Problem| {
        wrong.iter().chain(of_provider).any(|above| is_within(&problem.path, above) || is_whole(&problem.path, above))
    };
    found.into_iter().filter(|problem| !follows(problem)).collect()
}

/// Whether a problem is about all settings of a provider, of a host or of `notify`, of which another path is one: without that one the
/// whole cannot be judged. What a host lacks may be a setting of the provider.
fn is_whole(path: &str, part: &str) -> bool {
    let is_host = path.starts_with("hosts[") && path.ends_with(']');
    let of_provider = is_within(part, "provider");
    match path {
        "provider" => of_provider || part.starts_with("hosts["),
        "notify" => is_within(part, path),
        _ if is_host => of_provider || is_within(part, path),
        _ => (is_within(path, "provider") || path.starts_with("hosts[")) && is_within(part, path),
    }
}
