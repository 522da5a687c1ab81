//! Semantic validation of `mounts`.

use super::services::is_whole_path;
use crate::provider::{Lookup, Runtime};
use crate::spec::place::{Problem, item, join};
use crate::spec::sensitive::is_below;
use crate::spec::{MountSpec, ProviderChoice, Spec};

/// Paths in containers that are gpucl's own or the kernel's. Neither they, nor what is below them, nor what is above
/// them can be mounted over.
const OWN_PATHS: &[&str] = &[
    "/data",
    "/dev",
    "/opt/gpucl",
    "/opt/gpucl-dashboards",
    "/opt/gpucl-jupyter",
    "/proc",
    "/run/gpucl",
    "/sys",
    "/workspace",
];
/// The volumes of services.
const OWN_VOLUMES: &[&str] = &["grafana", "metrics", "objects", "workspace"];

/// Adds all semantic problems of the mounts.
pub(super) fn mounts(spec: &Spec, lookup: Lookup<'_>, problems: &mut Vec<Problem>) {
    if spec.runtime != Runtime::Docker {
        return;
    }
    for (index, mount) in spec.mounts.iter().enumerate() {
        let path = item("mounts", index);
        source(spec, mount, &path, lookup, problems);
        let at = join(&path, "at");
        if !is_plain_path(&mount.at) {
            problems.push(
                Problem::new(at, format!("`{}` is not a usable path in a container", mount.at))
                    .note("use an absolute path of letters, digits, `.`, `_` and `-`, such as /models"),
            );
        } else if let Some(own) = OWN_PATHS.iter().find(|own| is_below(&mount.at, own) || is_below(own, &mount.at)) {
            problems.push(Problem::new(at, format!("`{}` would cover {own}, which is in use", mount.at)).note(
                match *own {
                    "/dev" => {
                        "a device is given in a compose file of your own: `compose: [FILE]`, with `devices:` there"
                    }
                    _ => "use another path, such as /models",
                },
            ));
        } else if spec.mounts[..index].iter().any(|other| other.at == mount.at) {
            problems.push(Problem::new(at, format!("`{}` is given twice", mount.at)));
        }
    }
}

fn source(spec: &Spec, mount: &MountSpec, path: &str, lookup: Lookup<'_>, problems: &mut Vec<Problem>) {
    match (&mount.host, &mount.volume, &mount.file_system) {
        (Some(host), None, None) => {
            if !is_normal(host) {
                problems.push(
                    Problem::new(join(path, "host"), format!("`{host}` is not a usable absolute path"))
                        .note("for example: /srv/data, without `.`, `..` and double slashes"),
                );
            }
        }
        (None, Some(volume), None) => {
            let letters = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
            let begins = volume.starts_with(|letter: char| letter.is_ascii_lowercase());
            if !begins || volume.len() > 32 || !volume.chars().all(letters) {
                problems.push(
                    Problem::new(join(path, "volume"), format!("`{volume}` is not a volume name"))
                        .note("use 1 to 32 of a-z, 0-9 and -, beginning with a letter"),
                );
            } else if OWN_VOLUMES.contains(&volume.as_str()) {
                problems.push(Problem::new(join(path, "volume"), format!("`{volume}` is a volume of a service")));
            }
        }
        (None, None, Some(name)) => {
            if file_system(&spec.provider, name, lookup).is_none() {
                problems.push(
                    Problem::new(join(path, "file_system"), format!("the hosts have no file system `{name}`"))
                        .note("list it under `provider.file_systems`, with a provider that has them"),
                );
            }
        }
        _ => problems.push(
            Problem::new(path.to_owned(), "takes exactly one of `host`, `volume` and `file_system`")
                .note("for example: {volume: models, at: /models}"),
        ),
    }
}

/// Where every host of this provider has a file system; `None` if it attaches none of that name.
pub(in crate::spec) fn file_system(provider: &ProviderChoice, name: &str, lookup: Lookup<'_>) -> Option<String> {
    lookup(provider.name()).ok()?.file_system(&provider.settings(), name)
}

/// Whether the path is absolute, is the shortest way to write it, and is taken literally by compose.
fn is_normal(path: &str) -> bool {
    path == "/"
        || (is_whole_path(path) && path[1..].split('/').all(|part| !part.is_empty() && !matches!(part, "." | "..")))
}

/// Whether the path is normal, and a shell and a template take it as it is.
fn is_plain_path(path: &str) -> bool {
    path != "/"
        && is_normal(path)
        && path.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '/' | '.' | '_' | '-'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::any_provider::find;

    fn wrong(mounts: &str) -> Vec<(String, String)> {
        let text = format!("name: demo\nruntime: docker\nprovider: ssh\nmounts: {mounts}\n");
        let spec: Spec = serde_yaml::from_str(&text).unwrap();
        let mut problems = Vec::new();
        super::mounts(&spec, &find, &mut problems);
        problems.into_iter().map(|problem| (problem.path, problem.message)).collect()
    }

    #[test]
    fn good_mounts_pass() {
        let mounts = "[{host: /srv/my data, at: /srv/data, read_only: true}, {volume: models, at: /models}]";
        assert_eq!(wrong(mounts), []);
    }

    #[test]
    fn a_mount_has_one_source_and_a_place_of_its_own() {
        let places = |mounts: &str| wrong(mounts).into_iter().map(|(place, _)| place).collect::<Vec<_>>();
        assert_eq!(places("[{at: /x}]"), ["mounts[0]"]);
        assert_eq!(places("[{host: /srv, volume: v, at: /x}]"), ["mounts[0]"]);
        assert_eq!(places("[{volume: v, at: /x}, {volume: w, at: /x}]"), ["mounts[1].at"]);
        for at in
            ["/", "x", "/x/", "/x//y", "/x/../y", "/x y", "/x:y", "/data", "/data/x", "/opt", "/run/gpucl/x", "/proc"]
        {
            assert_eq!(places(&format!("[{{volume: v, at: '{at}'}}]")), ["mounts[0].at"], "{at}");
        }
        for host in ["srv", "/srv/", "/srv/../etc", "/srv/./x", "/srv//x", "/srv:x", "/a$b"] {
            assert_eq!(places(&format!("[{{host: '{host}', at: /x}}]")), ["mounts[0].host"], "{host}");
        }
        for volume in ["", "Models", "-x", "objects", "a_b"] {
            assert_eq!(places(&format!("[{{volume: '{volume}', at: /x}}]")), ["mounts[0].volume"], "{volume}");
        }
        assert_eq!(places("[{file_system: data, at: /x}]"), ["mounts[0].file_system"]);
    }

    #[test]
    fn a_file_system_is_one_that_the_provider_attaches() {
        let spec: Spec = serde_yaml::from_str(
            "name: demo\nruntime: docker\nprovider: any\n\
             mounts: [{file_system: sets, at: /sets}]\n",
        )
        .unwrap();
        let mut problems = Vec::new();
        super::mounts(&spec, &find, &mut problems);
        assert_eq!(problems, []);
        let at = file_system(&spec.provider, "sets", &find);
        assert_eq!(at.as_deref(), Some("/mnt/sets"));
    }
}
