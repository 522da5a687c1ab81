//! The steps that build images on a host, before anything of the cluster is started or stopped.

use std::collections::BTreeMap;
use std::time::Duration;

use super::images::Build;
use crate::host::StageFile;
use crate::playbook::{KnownError, Stage, Step};
use crate::runtime::project::setup::COMMAND_FAILED;
use crate::spec::Spec;

const BUILD: &str = include_str!("shell/build.sh");

/// The steps that build these images, in order; `None` when there are none.
pub(super) fn stage(spec: &Spec, tag: &str, builds: &[Build]) -> Option<Stage> {
    if builds.is_empty() {
        return None;
    }
    let mut steps: Vec<Step> = builds.iter().map(step).collect();
    let mut files = Vec::new();
    for build in builds {
        let own = [("Dockerfile", &build.dockerfile)];
        let others = build.files.iter().map(|(name, text)| (name.as_str(), text));
        for (name, text) in own.into_iter().chain(others) {
            let path = format!("build/{}/{name}", build.title);
            // The image's user reads them.
            files.push(StageFile { path, mode: 0o444, bytes: text.clone().into_bytes() });
        }
    }
    if let Some(setup) = spec.setup() {
        steps.push(Step {
            name: "use the image of `setup`".to_owned(),
            run: "value setup \"$setup\"\ndone_already \"it is on the host\"".to_owned(),
            variables: BTreeMap::from([("setup".to_owned(), setup.digest())]),
            ..Step::default()
        });
    }
    let variables = BTreeMap::from([("project".to_owned(), tag.to_owned())]);
    let timeout = spec.timeouts.prepare.0;
    Some(Stage { name: "prepare".to_owned(), steps, files, variables, timeout, wants_facts: true })
}

fn step(build: &Build) -> Step {
    let mut variables: BTreeMap<String, String> =
        build.arguments.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone())).collect();
    variables.insert("image".to_owned(), build.image.clone());
    variables.insert("title".to_owned(), build.title.clone());
    let arguments: String =
        build.arguments.keys().map(|name| format!(" --build-arg {name}=\"${}\"", name.to_ascii_lowercase())).collect();
    let is_setup = build.title.ends_with("-setup");
    let title = if is_setup { "with `setup`".to_owned() } else { build.title.clone() };
    let hint = match is_setup {
        true => "nothing that runs was changed; correct `setup` in the spec and run the same command again".to_owned(),
        false => format!("see templates/{}/README.md for the requirements", build.title),
    };
    Step {
        name: match build.title.as_str() {
            "jupyter-setup" => format!("build Jupyter's image {title}"),
            _ => format!("build the image {title}"),
        },
        unless: Some("timeout 20 docker image inspect \"$image\" >/dev/null 2>&1".to_owned()),
        run: format!("set --{arguments}\n{BUILD}"),
        variables,
        // A command of the user's that fails is not repeated.
        retry: u32::from(!is_setup),
        timeout: Some(Duration::from_secs(3600)),
        affected_paths: vec![format!("image {}, built there", build.image)],
        hint: Some(hint),
        errors: if is_setup { setup_errors() } else { errors() },
        ..Step::default()
    }
}

fn errors() -> Vec<KnownError> {
    vec![
        KnownError::new(
            "No matching distribution|Could not find a version|Temporary failure in name resolution|ConnectionError",
            "the host finds no packages: {line}",
            Some("set an index that the host can reach: `build: {pip_index_url: …}` in the spec"),
        ),
        KnownError::new("no space left on device", "the host's disk is full", None),
    ]
}

fn setup_errors() -> Vec<KnownError> {
    let [failed, says, hint] = COMMAND_FAILED;
    vec![
        KnownError::new(failed, says, Some(hint)),
        KnownError::new("setup: afterwards there was", "{line}", None),
        KnownError::new("no space left on device|No space left on device", "the host's disk is full", None),
        KnownError::new(
            "connection broken by|Failed to establish a new connection|name resolution|Network is unreachable|Read timed out",
            "the package index cannot be reached: {line}",
            Some("name an index that the host can reach: `setup: {index_url: …}` or `build: {pip_index_url: …}`"),
        ),
        KnownError::new(
            "No matching distribution found for",
            "a package of `setup` cannot be found: {line}",
            Some(
                "is its name right, and does the index have it for the Python of the image? `setup: {index_url: …}` names another index",
            ),
        ),
        KnownError::new(
            "Cannot install|conflicting dependencies",
            "the packages of `setup` do not fit together, or not with Ray: {line}",
            None,
        ),
        KnownError::new(
            "Failed building wheel for|Failed to build",
            "a package of `setup` cannot be built: {line}",
            None,
        ),
        KnownError::new("Invalid requirement", "`setup` has a requirement that is none: {line}", None),
    ]
}
