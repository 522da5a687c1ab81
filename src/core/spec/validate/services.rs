//! Semantic validation of services, images, and the user's compose files.

use crate::provider::Runtime;
use crate::spec::place::{Problem, item, join};
use crate::spec::walk::unknown_key;
use crate::spec::{ExternalMlflow, ExternalStore, IMAGE_NAMES, Spec};
use crate::util::near::nearest;

/// The Linux capabilities, as named in compose.
const CAPABILITIES: &[&str] = &[
    "AUDIT_CONTROL",
    "AUDIT_READ",
    "AUDIT_WRITE",
    "BLOCK_SUSPEND",
    "BPF",
    "CHECKPOINT_RESTORE",
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "IPC_LOCK",
    "IPC_OWNER",
    "KILL",
    "LEASE",
    "LINUX_IMMUTABLE",
    "MAC_ADMIN",
    "MAC_OVERRIDE",
    "MKNOD",
    "NET_ADMIN",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_RAW",
    "PERFMON",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYSLOG",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_CHROOT",
    "SYS_MODULE",
    "SYS_NICE",
    "SYS_PACCT",
    "SYS_PTRACE",
    "SYS_RAWIO",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "WAKE_ALARM",
];

/// Adds all semantic problems of these keys.
pub(super) fn services(spec: &Spec, problems: &mut Vec<Problem>) {
    if spec.runtime != Runtime::Docker {
        only_docker(spec, problems);
        return;
    }
    images(spec, problems);
    let services = spec.services();
    let of_service =
        |name: &str, settings: Option<Vec<String>>| (format!("services.{name}"), settings.unwrap_or_default());
    let given = [
        ("ray".to_owned(), spec.ray.capabilities.clone()),
        of_service("object_store", services.object_store.settings().map(|settings| settings.capabilities)),
        of_service("prometheus", services.prometheus.settings().map(|settings| settings.capabilities)),
        of_service("grafana", Some(services.grafana_settings().capabilities)),
        of_service("jupyter", services.jupyter.settings().map(|settings| settings.capabilities)),
    ];
    for (owner, names) in given {
        capabilities(&join(&owner, "capabilities"), &names, problems);
    }
    object_store(spec, problems);
    mlflow(spec, problems);
    if let Some(prometheus) = services.prometheus.settings() {
        let text = &prometheus.retention;
        let number = text.trim_end_matches(['h', 'd', 'w', 'y']);
        if text.len() != number.len() + 1 || !number.parse::<u32>().is_ok_and(|number| number > 0) {
            problems.push(
                Problem::new(
                    "services.prometheus.retention",
                    format!("`{text}` is not a retention time for Prometheus"),
                )
                .note("for example: 15d"),
            );
        }
    } else if services.grafana.as_ref().is_some_and(|grafana| grafana.settings().is_some()) {
        problems.push(
            Problem::new("services.grafana", "contradicts services.prometheus: false")
                .note("Grafana shows what Prometheus collects: keep both or neither"),
        );
    }
    let workspace = services.jupyter.settings().and_then(|jupyter| jupyter.workspace);
    if let Some(path) = workspace.filter(|path| !is_whole_path(path)) {
        problems.push(
            Problem::new("services.jupyter.workspace", format!("`{path}` is not a usable absolute path"))
                .note("for example: /home/ubuntu/work"),
        );
    }
    for (index, fragment) in spec.compose.iter().enumerate() {
        if fragment.path.is_empty() || fragment.path.contains('\0') {
            problems.push(Problem::new(item("compose", index), "is not a file path"));
        }
    }
    if let Some(url) = spec.build.as_ref().and_then(|build| build.pip_index_url.as_ref()) {
        if !(url.starts_with("https://") || url.starts_with("http://")) || url.contains(char::is_whitespace) {
            problems.push(Problem::new("build.pip_index_url", "is not a package index URL"));
        } else if url.contains('@') {
            problems
                .push(Problem::new("build.pip_index_url", "has a password that everyone with the image could read"));
        }
    }
}

/// The object store, which every runtime has.
fn object_store(spec: &Spec, problems: &mut Vec<Problem>) {
    let Some(store) = spec.services().object_store.settings() else { return };
    let path = "services.object_store";
    if let Some(external) = &store.external {
        if store.image.is_some() {
            problems.push(
                Problem::new(join(path, "image"), "contradicts services.object_store.external")
                    .note("an existing store needs no image: keep one of the two"),
            );
        }
        external_store(&join(path, "external"), external, problems);
    }
    for (index, bucket) in store.buckets.iter().enumerate() {
        if !is_bucket(bucket) {
            problems.push(
                Problem::new(item(&join(path, "buckets"), index), format!("`{bucket}` is not a bucket name"))
                    .note("use 3 to 63 of a-z, 0-9 and -, beginning and ending with a letter or digit"),
            );
        }
    }
    if let Some(image) = &store.image {
        image_name(&join(path, "image"), image, problems);
    }
}

/// An existing store, at this path.
pub(super) fn external_store(path: &str, store: &ExternalStore, problems: &mut Vec<Problem>) {
    let endpoint = &store.endpoint;
    let rest = endpoint.strip_prefix("https://").or_else(|| endpoint.strip_prefix("http://"));
    if !rest.is_some_and(|rest| !rest.is_empty() && !rest.contains(['/', '@', ' ', '?', '#'])) {
        problems.push(
            Problem::new(join(path, "endpoint"), format!("`{endpoint}` is not a store URL"))
                .note("for example: https://s3.example.org"),
        );
    }
    if store.profile.is_empty() || store.profile.contains(['[', ']', '\n', '\r']) {
        problems.push(Problem::new(join(path, "profile"), "is not a profile name"));
    }
    if !is_plain(&store.region) {
        problems.push(Problem::new(join(path, "region"), "takes letters, digits and `-`"));
    }
}

/// Refuses what only the runtime `docker` has, and checks the object store.
fn only_docker(spec: &Spec, problems: &mut Vec<Problem>) {
    let services = spec.services.clone().unwrap_or_default();
    let store = spec.services().object_store.settings().unwrap_or_default();
    let given = [
        ("services.prometheus", services.prometheus.as_ref().is_some_and(|one| one.settings().is_some())),
        ("services.grafana", services.grafana.as_ref().is_some_and(|one| one.settings().is_some())),
        ("services.jupyter", services.jupyter.as_ref().is_some_and(|one| one.settings().is_some())),
        ("services.object_store.image", store.image.is_some()),
        ("services.object_store.capabilities", !store.capabilities.is_empty()),
        ("images", !spec.images.is_empty()),
        ("build", spec.build.is_some()),
        ("compose", !spec.compose.is_empty()),
        ("mounts", !spec.mounts.is_empty()),
        ("ray.capabilities", !spec.ray.capabilities.is_empty()),
    ];
    for (key, _) in given.iter().filter(|(_, given)| *given) {
        let runtime = spec.runtime.name();
        let note = match *key {
            "mounts" => "processes see the host's own folders: name the path in the job, or use $GPUCL_DATA",
            _ => "leave it out, or set `runtime: docker`",
        };
        problems.push(
            Problem::of_key(*key, format!("requires the runtime `docker`, but this spec has `{runtime}`")).note(note),
        );
    }
    object_store(spec, problems);
    mlflow(spec, problems);
}

/// The MLflow server that jobs use.
fn mlflow(spec: &Spec, problems: &mut Vec<Problem>) {
    let Some(ExternalMlflow { uri, .. }) = spec.external_mlflow() else { return };
    let path = "services.mlflow.external.uri";
    let rest = uri.strip_prefix("https://").or_else(|| uri.strip_prefix("http://"));
    let is_odd = |it: char| it.is_whitespace() || it.is_control() || "?#\"'\\".contains(it);
    match rest {
        Some(rest) if rest.contains('@') => problems.push(
            Problem::new(path, "has a login in it").note("write the login to a file, and name it: credentials_file"),
        ),
        Some(rest) if !rest.is_empty() && !rest.starts_with('/') && !rest.contains(is_odd) => {}
        _ => problems.push(
            Problem::new(path, format!("`{uri}` is not the URL of an MLflow server"))
                .note("for example: https://mlflow.example.org"),
        ),
    }
}

fn capabilities(path: &str, names: &[String], problems: &mut Vec<Problem>) {
    for (index, name) in names.iter().enumerate().filter(|(_, name)| !CAPABILITIES.contains(&name.as_str())) {
        let problem = Problem::new(item(path, index), format!("`{name}` is not a Linux capability"));
        let upper = name.to_uppercase();
        problems.push(match nearest(upper.trim_start_matches("CAP_"), CAPABILITIES.iter().copied()) {
            Some(near) => problem.note(format!("did you mean `{near}`?")),
            None => problem.note("for example: CHOWN, SETUID, SYS_PTRACE"),
        });
    }
}

fn images(spec: &Spec, problems: &mut Vec<Problem>) {
    for (name, image) in &spec.images {
        let path = join("images", name);
        if !IMAGE_NAMES.contains(&name.as_str()) {
            problems.push(unknown_key(Problem::of_key(path, ""), name, IMAGE_NAMES.iter().copied()));
        } else {
            image_name(&path, image, problems);
        }
    }
}

fn image_name(path: &str, image: &str, problems: &mut Vec<Problem>) {
    let letters = |letter: char| letter.is_ascii_alphanumeric() || "./:_-@".contains(letter);
    let last = image.rsplit('/').next().unwrap_or_default();
    if image.is_empty()
        || !image.chars().all(letters)
        || !image.starts_with(|letter: char| letter.is_ascii_alphanumeric())
    {
        problems.push(Problem::new(path, format!("`{image}` is not an image name")));
    } else if !last.contains([':', '@']) || last.ends_with(":latest") {
        problems.push(
            Problem::new(path, format!("`{image}` is not pinned: use a tag other than `latest`, or a digest"))
                .note("a cluster with an image that changes cannot be reproduced"),
        );
    }
}

fn is_bucket(name: &str) -> bool {
    let is_edge = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    (3..=63).contains(&name.len())
        && name.chars().all(|letter| is_edge(letter) || letter == '-')
        && name.starts_with(is_edge)
        && name.ends_with(is_edge)
}

fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-')
}

/// Whether compose takes the path literally: it splits at colons, and `$` begins a variable.
pub(super) fn is_whole_path(path: &str) -> bool {
    path.starts_with('/')
        && path.len() > 1
        && !path.split('/').any(|part| part == "..")
        && !path.contains([':', '$', '"', '\\'])
        && !path.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(more: &str) -> Vec<(String, String)> {
        let spec: Spec = serde_yaml::from_str(&format!("name: demo\n{more}")).unwrap();
        let mut problems = Vec::new();
        services(&spec, &mut problems);
        problems.into_iter().map(|problem| (problem.path, problem.notes.join(" "))).collect()
    }

    #[test]
    fn an_unknown_linux_capability_is_refused_at_its_position() {
        let docker = "runtime: docker\nray: {capabilities: [SYS_PTRACE]}\nservices: {jupyter: {capabilities: [CHOWN]}, grafana: {capabilities: []}}\n";
        assert_eq!(wrong(docker), []);
        let refused = |at: &str, name: &str| vec![(at.to_owned(), format!("did you mean `{name}`?"))];
        let odd = "runtime: docker\nservices: {grafana: {capabilities: [CHOWN, cap_net_raw]}}\n";
        assert_eq!(wrong(odd), refused("services.grafana.capabilities[1]", "NET_RAW"));
        assert_eq!(
            wrong("runtime: docker\nray: {capabilities: [SYS_PTRAC]}\n"),
            refused("ray.capabilities[0]", "SYS_PTRACE")
        );
        // `ALL` is refused: it would give a container every capability.
        assert_eq!(wrong("runtime: docker\nray: {capabilities: [ALL]}\n").len(), 1);
        assert_eq!(wrong("ray: {capabilities: [CHOWN]}\n")[0].0, "ray.capabilities");
    }

    #[test]
    fn mlflow_is_absent_unless_it_is_asked_for() {
        for fine in ["{}", "{mlflow: false}", "{mlflow: true}", "{mlflow: {}}"] {
            for runtime in ["native", "docker"] {
                assert_eq!(wrong(&format!("runtime: {runtime}\nservices: {fine}\n")), [], "{fine}");
            }
        }
    }

    #[test]
    fn an_external_mlflow_has_a_url_without_a_login() {
        let external = |uri: &str| wrong(&format!("services: {{mlflow: {{external: {{uri: '{uri}'}}}}}}\n"));
        for fine in ["https://mlflow.example.org", "http://127.0.0.1:5000", "https://x/mlflow"] {
            assert_eq!(external(fine), [], "{fine}");
        }
        for odd in ["mlflow.example.org", "https://", "https:///x", "databricks", "https://x?a=b", "file:///x"] {
            assert_eq!(external(odd)[0].0, "services.mlflow.external.uri", "{odd}");
        }
        assert!(external("https://me:secret@x")[0].1.contains("credentials_file"));
    }

    #[test]
    fn without_containers_the_object_store_and_mlflow_are_the_only_services() {
        let paths = |more: &str| wrong(more).into_iter().map(|(path, _)| path).collect::<Vec<_>>();
        for fine in ["true", "false", "{buckets: [ray, data]}"] {
            assert_eq!(wrong(&format!("services: {{object_store: {fine}, jupyter: false}}\n")), []);
        }
        let external = "{external: {endpoint: 'https://s3.example.org', credentials_file: keys}}";
        assert_eq!(wrong(&format!("services: {{object_store: {external}}}\n")), []);
        assert_eq!(paths("services: {object_store: true, jupyter: true}\n"), ["services.jupyter"]);
        assert_eq!(paths("services: {prometheus: {retention: 1d}}\n"), ["services.prometheus"]);
        assert_eq!(paths("services: {object_store: {image: 'a:1'}}\n"), ["services.object_store.image"]);
        assert_eq!(paths("services: {object_store: {buckets: [A]}}\n"), ["services.object_store.buckets[0]"]);
    }
}
