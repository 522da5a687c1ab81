//! Files of a spec: what of the user's machine, or of a git repository, is in the data folder of each host.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Files in the data folder of every host. It has one of `path` and `git`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("asks_nothing" = ["ref", "to"]))]
pub struct FileSpec {
    /// A file or folder of this machine, by its path from the spec's folder; `~` is your home folder. What `.gitignore` and `.rayignore` there
    /// match is not sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("examples" = ["code"]))]
    #[schemars(extend("asks" = {"rule": "files"}))]
    pub path: Option<String>,
    /// A git repository, by its `https://` or `ssh://` URL; each host clones it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("examples" = ["https://example.org/lab/code.git"]))]
    #[schemars(extend("asks" = {"rule": "git"}))]
    pub git: Option<String>,
    /// The branch, tag or commit of the repository; its default branch when absent. The commit stays the same until
    /// `up --update-files`.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The place in the data folder: `$GPUCL_DATA/TO`.
    #[schemars(extend("examples" = ["code"]))]
    pub to: String,
    /// The absolute path on this machine, links followed; filled in when the spec is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub source: Option<String>,
    /// The commit that hosts have; filled in by `up`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub commit: Option<String>,
}

impl FileSpec {
    /// The branch, tag or commit.
    pub fn reference(&self) -> &str {
        self.reference.as_deref().unwrap_or("HEAD")
    }

    /// Where the files come from, in words.
    pub fn describe(&self) -> String {
        match (&self.git, &self.path) {
            (Some(url), _) => match &self.commit {
                Some(commit) => format!("{url} at {} ({})", commit.get(..12).unwrap_or(commit), self.reference()),
                None => format!("{url} ({})", self.reference()),
            },
            (None, path) => format!("{} of this machine", path.as_deref().unwrap_or_default()),
        }
    }
}
