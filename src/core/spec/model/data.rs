//! Data sets of a spec: folders in the data folder of each host, filled once before nodes start.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The folder in the data folder that holds gpucl's own files: downloads, and what is being filled.
pub const WORK_FOLDER: &str = ".gpucl";

/// A folder in the data folder of every host, filled before nodes start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("asks_nothing" = ["name"]))]
pub struct DataSpec {
    /// The folder's name: `$GPUCL_DATA/NAME` for jobs.
    #[schemars(extend("pattern" = "^[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}$", "examples" = ["cifar10"]))]
    pub name: String,
    /// Where its content comes from.
    pub from: DataSource,
    /// A shell command that succeeds in the folder when its content is whole. It runs after filling, and at each `up`.
    #[schemars(extend("examples" = ["test -s train.csv"]))]
    #[schemars(extend("asks" = {"class": "runs", "says": "`{}`", "on": "here"}))]
    pub check: String,
}

/// Where the content of a data set comes from: `url` with `sha256`, `command`, or `image`, which may have a `command`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("asks_nothing" = ["url", "sha256", "image"]))]
pub struct DataSource {
    /// The address of a file to download. An archive (`.tar`, `.tar.gz`, `.tgz`, `.tar.bz2`, `.tar.xz`, `.zip`) is
    /// unpacked; any other file stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("examples" = ["https://example.org/sets/cifar10.tar.gz"]))]
    pub url: Option<String>,
    /// The SHA-256 of that file, as 64 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = "^[0-9a-fA-F]{64}$"))]
    pub sha256: Option<String>,
    /// A shell command that fills the folder that it runs in, as the user of jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("asks" = {"class": "runs", "says": "`{}`", "on": "here"}))]
    pub command: Option<String>,
    /// An image whose container fills the folder that it runs in, by `command` or, without one, by what it runs itself;
    /// only with the runtime `docker`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

impl DataSource {
    /// What fills the set, in words.
    pub fn describe(&self) -> String {
        match (&self.url, &self.image) {
            (Some(url), _) => format!("from {}", without_query(url)),
            (None, Some(image)) => format!("by the image {image}"),
            (None, None) => "by its command".to_owned(),
        }
    }
}

/// A URL without what follows `?` or `#`, which may be a signature.
fn without_query(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_in_a_url_is_not_shown() {
        let from =
            DataSource { url: Some("https://x.org/a.tgz?X-Signature=secret".to_owned()), ..DataSource::default() };
        assert_eq!(from.describe(), "from https://x.org/a.tgz");
    }
}
