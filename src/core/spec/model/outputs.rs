//! The outputs of a job: what `gpucl run` fetches before the cluster is taken down.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The maximum length of a path, in bytes.
const LONGEST: usize = 1024;

/// A file or folder in the cluster's data folder, by its path from there: `results`, `out/model.pt`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OutputPath(String);

impl OutputPath {
    /// The path, without a slash at its end.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name that it has where it is copied to: the last part of the path.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }
}

impl std::fmt::Display for OutputPath {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::str::FromStr for OutputPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let path = text.strip_suffix('/').unwrap_or(text);
        let wrong = |why: &str| Err(format!("`{text}` is not an output: {why}"));
        if path.is_empty() || text.starts_with('/') || path.starts_with('~') {
            return wrong("use a path in the cluster's data folder, such as `results` or `out/model.pt`");
        }
        if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return wrong("its parts are names, without `.`, `..` and doubled slashes");
        }
        if path.contains(['*', '?']) {
            return wrong("patterns are not supported; name the folder");
        }
        if path.len() > LONGEST || path.chars().any(char::is_control) {
            return wrong("it is longer than 1024 bytes, or has a line break or another control character");
        }
        Ok(Self(path.to_owned()))
    }
}

impl TryFrom<String> for OutputPath {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<OutputPath> for String {
    fn from(path: OutputPath) -> String {
        path.0
    }
}

impl JsonSchema for OutputPath {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "OutputPath".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "examples": ["results", "out/model.pt"] })
    }
}

/// The first output that would replace an earlier one, as both have the same name: its index, and the earlier one.
pub fn same_name(outputs: &[OutputPath]) -> Option<(usize, &OutputPath)> {
    let mut names = BTreeMap::new();
    outputs.iter().enumerate().find_map(|(index, output)| Some((index, names.insert(output.name(), output)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Result<OutputPath, String> {
        text.parse()
    }

    #[test]
    fn an_output_is_a_path_below_the_data_folder() {
        for (text, stored, name) in [
            ("results", "results", "results"),
            ("results/", "results", "results"),
            ("out/model.pt", "out/model.pt", "model.pt"),
            ("..a/b c", "..a/b c", "b c"),
        ] {
            let path = path(text).unwrap();
            assert_eq!((path.as_str(), path.name()), (stored, name));
        }
        for text in ["", "/", "/etc/passwd", "~/x", "../x", "a/../../x", "a//b", "./a", ".", "a/*.pt", "a\nb"] {
            assert!(path(text).is_err_and(|why| why.contains("is not an output")), "{text}");
        }
        assert!(path(&"a".repeat(LONGEST + 1)).is_err());
    }

    #[test]
    fn two_outputs_of_one_name_would_replace_each_other() {
        let all = |texts: &[&str]| texts.iter().map(|text| path(text).unwrap()).collect::<Vec<_>>();
        assert_eq!(same_name(&all(&["a/x", "b/y"])), None);
        let both = all(&["a/x", "b/y", "b/x"]);
        assert_eq!(same_name(&both), Some((2, &both[0])));
    }
}
