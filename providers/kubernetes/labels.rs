//! Labels and annotations that a spec may give objects, by the grammar of Kubernetes:
//! <https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set>. Pure.

use std::collections::BTreeMap;

use crate::provider::{FieldError, settings};

/// The prefix of gpucl's own labels and annotations.
const OURS: &str = "gpucl.dev";
/// The most that all annotations of an object have, in bytes.
const MOST_ANNOTATIONS: usize = 256 << 10;

/// What is checked: labels or annotations, and of what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    /// Labels of an object that gpucl makes.
    Object,
    /// Annotations of an object that gpucl makes.
    Annotations,
    /// Labels of machines, which are only looked for.
    Machine,
}

/// What Kubernetes would refuse, or would be gpucl's own, at this path of the settings.
pub(super) fn faults(path: &str, entries: &BTreeMap<String, String>, of: Of) -> Vec<FieldError> {
    let fault = |path: String, message: String| FieldError { path, message, known: Vec::new() };
    let what = if of == Of::Annotations { "an annotation" } else { "a label" };
    let mut faults = Vec::new();
    for (key, value) in entries {
        let below = settings::join(path, key);
        let (prefix, name) = key.split_once('/').map_or((None, key.as_str()), |(prefix, name)| (Some(prefix), name));
        // Kubernetes ignores the case of an annotation's key.
        let has_prefix = prefix.is_none_or(|prefix| match of {
            Of::Annotations => is_domain(&prefix.to_ascii_lowercase()),
            _ => is_domain(prefix),
        });
        if !has_prefix || !is_name(name) {
            faults.push(fault(
                below,
                format!(
                    "is not the key of {what}: it takes at most 63 letters, digits, -, _ and ., beginning and ending \
                     with a letter or digit, after an optional domain in small letters and a `/`"
                ),
            ));
        } else if of != Of::Machine && prefix.is_some_and(|prefix| is_ours(&prefix.to_ascii_lowercase())) {
            faults.push(fault(below, "is gpucl's own, by which it finds what it made: leave it out".to_owned()));
        } else if of != Of::Annotations && !value.is_empty() && !is_name(value) {
            faults.push(fault(
                below,
                format!(
                    "`{}` is not the value of a label: it takes at most 63 letters, digits, -, _ and ., beginning and \
                     ending with a letter or digit",
                    value.escape_debug()
                ),
            ));
        }
    }
    let size: usize = entries.iter().map(|(key, value)| key.len() + value.len()).sum();
    if of == Of::Annotations && size > MOST_ANNOTATIONS {
        faults.push(fault(path.to_owned(), "are too long: Kubernetes takes 256 KiB in all".to_owned()));
    }
    faults
}

/// The part after the `/` of a key, or the value of a label.
fn is_name(text: &str) -> bool {
    let is_end = |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_alphanumeric());
    text.len() <= 63
        && is_end(text.chars().next())
        && is_end(text.chars().next_back())
        && text.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter))
}

/// The part before the `/`: a DNS subdomain.
fn is_domain(text: &str) -> bool {
    let is_inner = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    text.len() <= 253
        && text.split('.').all(|part| {
            !part.is_empty() && !part.starts_with('-') && !part.ends_with('-') && part.chars().all(is_inner)
        })
}

fn is_ours(prefix: &str) -> bool {
    prefix == OURS || prefix.strip_suffix(OURS).is_some_and(|above| above.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(key: &str, value: &str, of: Of) -> Vec<String> {
        let entries = BTreeMap::from([(key.to_owned(), value.to_owned())]);
        faults("labels", &entries, of).into_iter().map(|fault| format!("{}: {}", fault.path, fault.message)).collect()
    }

    #[test]
    fn what_kubernetes_takes_is_taken() {
        let long = "a".repeat(63);
        for (key, value) in [
            ("kueue.x-k8s.io/queue-name", "team-a"),
            ("tier", ""),
            ("A_b-c.1", "x_Y.z-1"),
            (long.as_str(), long.as_str()),
            ("a/b", "1"),
        ] {
            assert_eq!(of(key, value, Of::Object), [""; 0], "{key}");
        }
        assert_eq!(of("Example.org/Any", "two words, and more: {}", Of::Annotations), [""; 0]);
        assert_eq!(of("gpucl.dev/pool", "a", Of::Machine), [""; 0], "a label that machines may have");
    }

    #[test]
    fn what_it_refuses_is_refused_at_its_key() {
        let long = "a".repeat(64);
        for key in ["", "-a", "a-", "a b", "a/b/c", "/a", "a/", "Example.org/a", "a..b/c", "a_b/c", &long, "größe"] {
            let shown = of(key, "x", Of::Object);
            assert_eq!(shown.len(), 1, "{key}");
            assert!(shown[0].contains("is not the key of a label"), "{shown:?}");
        }
        for value in ["-a", "a b", "a/b", "two\nlines", &long] {
            let shown = of("example.org/tier", value, Of::Object);
            assert!(shown[0].starts_with("labels.\"example.org/tier\": `"), "{shown:?}");
            assert!(shown[0].contains("is not the value of a label"), "{shown:?}");
        }
        assert!(of("a b", "x", Of::Annotations)[0].contains("of an annotation"));
        assert_eq!(of("a", &"x".repeat(MOST_ANNOTATIONS), Of::Annotations).len(), 1);
    }

    #[test]
    fn gpucls_own_are_left_alone() {
        for key in ["gpucl.dev/owner", "gpucl.dev/pods", "gpucl.dev/new", "x.gpucl.dev/y"] {
            assert!(of(key, "x", Of::Object)[0].contains("is gpucl's own"), "{key}");
        }
        assert!(of("GPUCL.dev/digest", "x", Of::Annotations)[0].contains("is gpucl's own"));
        assert_eq!(of("mygpucl.dev/x", "y", Of::Object), [""; 0]);
    }
}
