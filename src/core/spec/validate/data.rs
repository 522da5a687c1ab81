//! Semantic validation of `data`.

use crate::provider::Runtime;
use crate::spec::place::{Problem, item, join};
use crate::spec::{DataSource, Spec};

/// Adds all semantic problems of the data sets.
pub(super) fn data(spec: &Spec, problems: &mut Vec<Problem>) {
    for (index, data) in spec.data.iter().enumerate() {
        let path = item("data", index);
        if !is_name(&data.name) {
            problems.push(
                Problem::new(join(&path, "name"), format!("`{}` is not a name of a data set", data.name))
                    .note("use 1 to 64 letters, digits, `.`, `_` and `-`, beginning with a letter or digit"),
            );
        } else if spec.data[..index].iter().any(|other| other.name == data.name) {
            problems.push(Problem::new(join(&path, "name"), format!("`{}` is given twice", data.name)));
        }
        if data.check.trim().is_empty() || data.check.contains('\0') {
            problems.push(
                Problem::new(join(&path, "check"), "is empty, must be a shell command")
                    .note("for example: check: test -s train.csv"),
            );
        }
        source(spec, &data.from, &join(&path, "from"), problems);
    }
}

fn source(spec: &Spec, from: &DataSource, path: &str, problems: &mut Vec<Problem>) {
    match (&from.url, &from.command, &from.image) {
        (Some(url), None, None) => {
            if let Some(why) = wrong_url(url) {
                problems.push(
                    Problem::new(join(path, "url"), why).note("for example: https://example.org/sets/cifar10.tar.gz"),
                );
            }
            match &from.sha256 {
                Some(sum) if sum.len() == 64 && sum.chars().all(|letter| letter.is_ascii_hexdigit()) => {}
                Some(sum) => problems.push(
                    Problem::new(join(path, "sha256"), format!("`{sum}` is not a SHA-256: use 64 hexadecimal digits"))
                        .note("`sha256sum FILE` prints it"),
                ),
                None => problems.push(
                    Problem::new(path.to_owned(), "has a `url` and no `sha256`")
                        .note("`sha256sum FILE` prints it; its publisher may list it beside the download"),
                ),
            }
            return;
        }
        (None, _, Some(image)) => {
            if spec.runtime != Runtime::Docker {
                problems.push(
                    Problem::new(join(path, "image"), "needs the runtime `docker`")
                        .note("use `command` without an image"),
                );
            } else if image.is_empty() || image.starts_with('-') || image.contains(char::is_whitespace) {
                problems.push(Problem::new(join(path, "image"), format!("`{image}` is not an image name")));
            }
        }
        (None, Some(_), None) => {}
        _ => {
            problems.push(
                Problem::new(path.to_owned(), "takes one of `url` with `sha256`, `command`, and `image`")
                    .note("for example: from: {command: python -m my.download}"),
            );
            return;
        }
    }
    if from.sha256.is_some() {
        problems.push(Problem::of_key(join(path, "sha256"), "is only for a `url`"));
    }
    if from.command.as_ref().is_some_and(|command| command.trim().is_empty() || command.contains('\0')) {
        problems.push(Problem::new(join(path, "command"), "is empty, must be a shell command"));
    }
}

fn is_name(name: &str) -> bool {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-');
    name.len() <= 64 && name.starts_with(|letter: char| letter.is_ascii_alphanumeric()) && name.chars().all(plain)
}

/// Why a URL cannot be used; `None` if it can.
fn wrong_url(url: &str) -> Option<String> {
    let rest = ["https://", "http://"].into_iter().find_map(|scheme| url.strip_prefix(scheme));
    let Some(rest) = rest else { return Some("must begin with https:// or http://".to_owned()) };
    if url.chars().any(|letter| letter.is_control() || letter.is_whitespace()) {
        return Some("has a space or a control character, must be percent-encoded".to_owned());
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Some("has a user name or password in it, which would be stored and shown".to_owned());
    }
    authority.is_empty().then(|| "names no server".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUM: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn wrong(runtime: &str, data: &str) -> Vec<String> {
        let text = format!("name: demo\nruntime: {runtime}\nprovider: ssh\ndata: [{data}]\n");
        let spec: Spec = serde_yaml::from_str(&text).unwrap();
        let mut problems = Vec::new();
        super::data(&spec, &mut problems);
        problems.into_iter().map(|problem| problem.path).collect()
    }

    #[test]
    fn a_data_set_has_one_source_and_a_check() {
        let right = [
            format!("{{name: a.b-c_D, from: {{url: 'https://x.org/a.tgz?sig=1', sha256: {SUM}}}, check: 'true'}}"),
            "{name: a, from: {command: make it}, check: 'true'}, {name: b, from: {command: x}, check: 'true'}"
                .to_owned(),
        ];
        for data in &right {
            assert_eq!(wrong("native", data), [""; 0], "{data}");
        }
        for image in ["{image: 'a/b:1'}", "{image: a, command: x}"] {
            let data = format!("{{name: a, from: {image}, check: 'true'}}");
            assert_eq!(wrong("docker", &data), [""; 0]);
            assert_eq!(wrong("native", &data), ["data[0].from.image"]);
        }
        for name in ["", "'.x'", "a/b", "..", "'a b'", "-x", "\"a\\nb\"", "\"a'b\"", &"x".repeat(65)] {
            let data = format!("{{name: {name}, from: {{command: x}}, check: 'true'}}");
            assert_eq!(
                wrong("native", if name.is_empty() { "{name: '', from: {command: x}, check: 'true'}" } else { &data }),
                ["data[0].name"],
                "{name}"
            );
        }
        for (from, place) in [
            ("{}", "data[0].from".to_owned()),
            ("{command: x, url: 'https://x.org/a'}", "data[0].from".to_owned()),
            ("{url: 'https://x.org/a'}", "data[0].from".to_owned()),
            ("{url: 'https://x.org/a', sha256: abc}", "data[0].from.sha256".to_owned()),
            ("{command: ' '}", "data[0].from.command".to_owned()),
            ("{command: x, sha256: abc}", "data[0].from.sha256".to_owned()),
        ] {
            assert_eq!(wrong("native", &format!("{{name: a, from: {from}, check: 'true'}}")), [place], "{from}");
        }
        for url in ["file:///etc/passwd", "ftp://x/y", "-x", "https://me:word@x.org/a", "https:///a", "'https://x/a b'"]
        {
            let from = format!("{{url: {url}, sha256: {SUM}}}");
            assert_eq!(
                wrong("native", &format!("{{name: a, from: {from}, check: 'true'}}")),
                ["data[0].from.url"],
                "{url}"
            );
        }
        assert_eq!(wrong("native", "{name: a, from: {command: x}, check: ''}"), ["data[0].check"]);
        let twice = "{name: a, from: {command: x}, check: y}, {name: a, from: {command: x}, check: y}";
        assert_eq!(wrong("native", twice), ["data[1].name"]);
    }
}
