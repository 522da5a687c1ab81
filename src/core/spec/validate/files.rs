//! Semantic validation of `files`.

use crate::spec::place::{Problem, item, join};
use crate::spec::{Spec, WORK_FOLDER};

/// Adds all semantic problems of the files.
pub(super) fn files(spec: &Spec, problems: &mut Vec<Problem>) {
    for (index, file) in spec.files.iter().enumerate() {
        let path = item("files", index);
        match (&file.path, &file.git) {
            (Some(_), None) => {
                if file.reference.is_some() {
                    problems.push(Problem::of_key(join(&path, "ref"), "is only for `git`"));
                }
            }
            (None, Some(url)) => {
                if let Some(why) = wrong_git(url) {
                    problems.push(
                        Problem::new(join(&path, "git"), why)
                            .note("for example: https://example.org/lab/code.git, ssh://git@example.org/lab/code.git"),
                    );
                }
                if !is_reference(file.reference()) {
                    problems.push(
                        Problem::new(
                            join(&path, "ref"),
                            format!("`{}` is not a branch, tag or commit", file.reference()),
                        )
                        .note("for example: main, v1.2, or a commit of 40 hexadecimal digits"),
                    );
                }
            }
            _ => problems.push(
                Problem::new(path.clone(), "takes one of `path` and `git`").note("for example: {path: code, to: code}"),
            ),
        }
        let to = join(&path, "to");
        if !is_place(&file.to) {
            problems.push(
                Problem::new(to, format!("`{}` is not a place in the data folder", file.to))
                    .note("use a path from there, such as `code`, without `.`, `..`, `.gpucl` and line breaks"),
            );
        } else if spec.files[..index].iter().any(|other| overlap(&other.to, &file.to)) {
            problems.push(Problem::new(to, format!("`{}` is in or above the place of other files", file.to)));
        } else if spec.data.iter().any(|data| overlap(&data.name, &file.to)) {
            problems.push(Problem::new(to, format!("`{}` is in or above a data set of that name", file.to)));
        }
    }
}

/// Why a URL of a repository cannot be used; `None` if it can.
fn wrong_git(url: &str) -> Option<String> {
    let (rest, is_ssh) = match (url.strip_prefix("https://"), url.strip_prefix("ssh://")) {
        (Some(rest), _) => (rest, false),
        (None, Some(rest)) => (rest, true),
        (None, None) => return Some("must begin with https:// or ssh://".to_owned()),
    };
    if url.chars().any(|letter| letter.is_control() || letter.is_whitespace()) {
        return Some("has a space or a control character, must be percent-encoded".to_owned());
    }
    // Where the server's name ends is not the same for all readers of URLs; no repository needs one of these.
    if url.contains(['?', '#', '\\']) {
        return Some("has a `?`, a `#` or a backslash".to_owned());
    }
    let authority = rest.split('/').next().unwrap_or_default();
    // git decodes it before it looks where the server's name ends.
    if authority.contains('%') {
        return Some("has a `%` before its path".to_owned());
    }
    let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    if user.is_some_and(|user| !is_ssh || user.contains(':')) {
        return Some("has a user name or password in it, which would be stored and shown".to_owned());
    }
    if host.is_empty() || host.starts_with('-') || user.is_some_and(|user| user.is_empty() || user.starts_with('-')) {
        return Some("names no server".to_owned());
    }
    None
}

fn is_reference(text: &str) -> bool {
    let plain =
        |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-' | '/' | '+' | '#' | '@');
    !text.is_empty() && text.len() <= 200 && !text.starts_with('-') && !text.contains("..") && text.chars().all(plain)
}

fn is_place(to: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && part != "." && part != "..";
    to.len() <= 1024
        && to.split('/').all(is_part)
        && to.split('/').next() != Some(WORK_FOLDER)
        && !to.chars().any(char::is_control)
}

/// Whether one path is the other, or in it.
fn overlap(one: &str, other: &str) -> bool {
    let within = |path: &str, folder: &str| {
        path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    within(one, other) || within(other, one)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(files: &str) -> Vec<String> {
        let text = format!("name: demo\ndata: [{{name: set, from: {{command: x}}, check: y}}]\nfiles: [{files}]\n");
        let spec: Spec = serde_yaml::from_str(&text).unwrap();
        let mut problems = Vec::new();
        super::files(&spec, &mut problems);
        problems.into_iter().map(|problem| problem.path).collect()
    }

    #[test]
    fn files_have_one_source_and_a_place_of_their_own() {
        for right in [
            "{path: code, to: code}, {path: 'a b', to: \"x/it's mine\"}",
            "{git: 'https://x.org/a.git', ref: feature/x, to: a}",
            "{git: 'ssh://git@x.org:22/a.git', to: a}",
        ] {
            assert_eq!(wrong(right), [""; 0], "{right}");
        }
        assert_eq!(wrong("{to: a}"), ["files[0]"]);
        assert_eq!(wrong("{path: a, git: 'https://x.org/a', to: a}"), ["files[0]"]);
        assert_eq!(wrong("{path: a, ref: main, to: a}"), ["files[0].ref"]);
        for to in ["''", "/a", "a/", "a//b", "..", "a/../b", ".gpucl", ".gpucl/x", "\"a\\nb\"", "set", "set/x"] {
            assert_eq!(wrong(&format!("{{path: a, to: {to}}}")), ["files[0].to"], "{to}");
        }
        assert_eq!(wrong("{path: a, to: a}, {path: b, to: a/b}"), ["files[1].to"]);
    }

    #[test]
    fn a_repository_is_reached_by_https_or_ssh_and_its_url_holds_no_credential_or_option() {
        for url in [
            "ext::sh -c touch% /tmp/x",
            "file:///srv/a.git",
            "http://x.org/a.git",
            "git://x.org/a.git",
            "/srv/a.git",
            "git@x.org:a.git",
            "--upload-pack=touch",
            "https://me:word@x.org/a.git",
            "https://token@x.org/a.git",
            "ssh://me:word@x.org/a.git",
            "ssh://-oProxyCommand=x/a.git",
            "ssh://-l@x.org/a.git",
            "https:///a.git",
            "https://127.0.0.1:1?@example.org/a.git",
            "https://127.0.0.1:1#@example.org/a.git",
            "ssh://127.0.0.1%3a1%2f@example.org/a.git",
            "https://example.org\\\\@127.0.0.1/a.git",
        ] {
            assert_eq!(wrong(&format!("{{git: '{url}', to: a}}")), ["files[0].git"], "{url}");
        }
        for reference in ["--upload-pack=x", "''", "a..b", "a b", "'a:b'", "'a^{}'", "\"a\\nb\""] {
            let file = format!("{{git: 'https://x.org/a.git', ref: {reference}, to: a}}");
            assert_eq!(wrong(&file), ["files[0].ref"], "{reference}");
        }
    }
}
