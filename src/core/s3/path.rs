//! Names of objects: as a user writes them, and as paths of this machine.

use std::path::PathBuf;

/// A bucket, and a key or the beginning of keys in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Path {
    /// The bucket.
    pub bucket: String,
    /// The key; empty for the whole bucket.
    pub key: String,
}

impl S3Path {
    /// Reads `s3://BUCKET/KEY` or `BUCKET/KEY`; `None` if it names no bucket.
    pub fn of(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("s3://").unwrap_or(text);
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        let letters = |letter: char| letter.is_ascii_alphanumeric() || ".-_".contains(letter);
        let is_bucket = !bucket.is_empty() && bucket.chars().all(letters) && !matches!(bucket, "." | "..");
        is_bucket.then(|| Self { bucket: bucket.to_owned(), key: key.to_owned() })
    }

    /// The beginning of all keys below it, as below a folder: its key with a slash at the end, unless it is empty.
    pub fn folder(&self) -> String {
        match self.key.as_str() {
            "" => String::new(),
            key if key.ends_with('/') => key.to_owned(),
            key => format!("{key}/"),
        }
    }

    /// The last part of its key.
    pub fn name(&self) -> &str {
        self.key.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
    }
}

impl std::fmt::Display for S3Path {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "s3://{}/{}", self.bucket, self.key)
    }
}

/// The path of an object below a folder, from the rest of its key; `None` if no file can have that name, or if it would
/// lead out of the folder. A job chooses the keys.
pub fn local_path(rest: &str) -> Option<PathBuf> {
    let is_name = |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains('\0');
    rest.split('/').all(is_name).then(|| PathBuf::from(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_written_with_or_without_its_scheme() {
        for (text, bucket, key) in [
            ("s3://ray/a/b", "ray", "a/b"),
            ("ray/a/b", "ray", "a/b"),
            ("ray", "ray", ""),
            ("s3://ray/", "ray", ""),
            ("ray//a", "ray", "/a"),
        ] {
            assert_eq!(S3Path::of(text), Some(S3Path { bucket: bucket.to_owned(), key: key.to_owned() }), "{text}");
        }
        for wrong in ["", "s3://", "/a", "./a", "../a", "a b/c", "http://x/y"] {
            assert_eq!(S3Path::of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn no_key_leads_out_of_a_folder() {
        for wrong in ["", "../a", "a/../b", "/etc/x", "a//b", "a/", "./a", "a/.", "a\0b"] {
            assert_eq!(local_path(wrong), None, "{wrong:?}");
        }
        for right in ["a", "a/b", "..a/b", "a b/'\"\n", "-rf", "%2e%2e/x"] {
            assert_eq!(local_path(right), Some(PathBuf::from(right)), "{right:?}");
        }
    }
}
