//! Pins the image tags of a cluster to the digests that were pulled first.
//!
//! The owner of a tag can move it. A host that joins later, or pulls again, would then run another image than the
//! rest: a warning reports that, and the host gets the recorded digest.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::render::quote;
use crate::util::fs;

const FILE: &str = "images.json";
/// The last line of a script that tagged the recorded image successfully.
const KEPT: &str = "::kept";

/// The digests of a cluster's images by name, as first pulled.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct FirstPulls {
    v: u32,
    images: BTreeMap<String, String>,
}

/// A tag with another digest on a host than the recorded one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Moved {
    image: String,
    recorded: String,
    now: String,
}

/// Records images pulled for the first time in the cluster's folder; returns those with another recorded digest.
pub(super) fn record(folder: &Path, images: &str) -> Result<Vec<Moved>> {
    let path = folder.join(FILE);
    let doing = || "record the digests of the images".to_owned();
    let mut first: FirstPulls = match fs_err::read(&path) {
        Ok(bytes) => serde_json::from_slice(&bytes).doing(ErrorKind::State, doing)?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => FirstPulls::default(),
        Err(error) => return Err(error).doing(ErrorKind::State, doing),
    };
    let before = first.images.len();
    let moved = first.take(images);
    if first.images.len() > before {
        first.v = 1;
        let bytes = serde_json::to_vec_pretty(&first).doing(ErrorKind::State, doing)?;
        fs::write_atomic(&path, &bytes, 0o600).doing(ErrorKind::State, doing)?;
    }
    Ok(moved)
}

impl FirstPulls {
    /// Adds `NAME@DIGEST` words, as the playbook `images` returns them.
    fn take(&mut self, images: &str) -> Vec<Moved> {
        let mut pulled: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for word in images.split_whitespace() {
            if let Some((image, digest)) = word.rsplit_once('@').filter(|(_, digest)| is_digest(digest)) {
                pulled.entry(image).or_default().push(digest);
            }
        }
        let mut moved = Vec::new();
        for (image, digests) in pulled {
            match self.images.get(image) {
                // An image may have several digests: of its index, and its own.
                Some(recorded) if !digests.contains(&recorded.as_str()) => moved.push(Moved {
                    image: image.to_owned(),
                    recorded: recorded.clone(),
                    now: digests[0].to_owned(),
                }),
                Some(_) => {}
                None => {
                    self.images.insert(image.to_owned(), digests[0].to_owned());
                }
            }
        }
        moved
    }
}

fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:")
        .is_some_and(|hex| hex.len() == 64 && hex.chars().all(|letter| letter.is_ascii_hexdigit()))
}

impl Moved {
    /// The warning to print.
    pub(super) fn warning(&self, host: &str) -> String {
        format!(
            "the tag of the image {} has moved: on {host} it is {}, but it was {} when this cluster first pulled it. \
             The first one is kept; to use the new one, set `{}@{}` under `images:`",
            self.image,
            self.now,
            self.recorded,
            self.repository(),
            self.now
        )
    }

    /// The image's name without its tag.
    fn repository(&self) -> &str {
        self.image.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')).map_or(&self.image, |(name, _)| name)
    }

    /// The script that gives a host the recorded image under this name.
    pub(super) fn script(&self) -> String {
        let (whole, name) = (quote(&format!("{}@{}", self.repository(), self.recorded)), quote(&self.image));
        format!("timeout 3600 docker pull -q {whole} 2>&1 && docker tag {whole} {name} 2>&1 && echo {KEPT}\n")
    }

    /// Fails unless the script succeeded.
    pub(super) fn check(&self, host: &str, lines: &[String]) -> Result<()> {
        if lines.last().is_some_and(|line| line == KEPT) {
            return Ok(());
        }
        let why = lines.last().map_or("it said nothing", String::as_str);
        Err(Error::new(ErrorKind::Host, format!("give {host} the image {}", self.image))
            .because(format!(
                "its tag has moved to {}, and the recorded {} cannot be pulled: {why}",
                self.now, self.recorded
            ))
            .hint(format!("to use the new one, set `{}@{}` under `images:` in the spec", self.repository(), self.now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(letter: &str) -> String {
        format!("sha256:{}", letter.repeat(64))
    }

    #[test]
    fn the_first_digest_of_a_tag_is_kept_and_another_one_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let images = |letter: &str| format!("reg:5000/a/ray:1@{} b/x:2@{} ", digest(letter), digest("b"));
        assert_eq!(record(folder.path(), &images("a")).unwrap(), []);
        assert_eq!(record(folder.path(), &images("a")).unwrap(), []);
        let moved = record(folder.path(), &images("c")).unwrap();
        assert_eq!(moved.len(), 1);
        let warning = moved[0].warning("host-1");
        assert!(
            warning.contains("reg:5000/a/ray:1") && warning.contains(&digest("c")) && warning.contains(&digest("a")),
            "{warning}"
        );
        let script = moved[0].script();
        assert!(script.contains(&format!("docker pull -q 'reg:5000/a/ray@{}'", digest("a"))), "{script}");
        // The recorded digest stays, whatever a host reports later.
        assert_eq!(record(folder.path(), &images("c")).unwrap(), moved);
        assert!(moved[0].check("host-1", &["::kept".to_owned()]).is_ok());
        let error = moved[0].check("host-1", &["manifest unknown".to_owned()]).unwrap_err();
        assert!(error.hints()[0].contains(&format!("reg:5000/a/ray@{}", digest("c"))), "{error}");
    }

    #[test]
    fn one_of_several_digests_is_enough_and_invalid_ones_are_ignored() {
        let mut first = FirstPulls::default();
        assert_eq!(first.take(&format!("a:1@{}", digest("a"))), []);
        assert_eq!(first.take(&format!("a:1@{} a:1@{}", digest("d"), digest("a"))), []);
        assert_eq!(first.take("a:1@sha256:x a:1 @ $(reboot)@y"), []);
        assert_eq!(first.images.len(), 1);
    }
}
