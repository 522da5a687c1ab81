//! `setup`: the packages and commands that every node of a cluster has, installed once on each host.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::services::Fragment;
use crate::util::digest;

/// Packages and commands for one environment or image, shared by all clusters of a host with the same content.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("asks_nothing" = []))]
pub struct SetupSpec {
    /// Packages, as pip takes them: `torch`, `numpy<3`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    #[schemars(extend("asks" = {"class": "runs", "says": "Python packages: {}", "on": "here"}))]
    pub pip: Vec<String>,
    /// A requirements file, by its path relative to the spec's folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("asks" = {"class": "runs", "says": "Python packages of {}", "on": "here"}))]
    pub requirements: Option<Fragment>,
    /// The package index, instead of the host's own default. It is readable on the host, so no credentials here.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("asks" = {"class": "runs", "says": "packages from {}", "on": "here"}))]
    pub index_url: Option<String>,
    /// Shell commands that are run after the packages are installed, in this order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[schemars(extend("asks" = {"class": "runs", "says": "`{}`", "on": "here"}))]
    pub commands: Vec<String>,
}

impl SetupSpec {
    /// Every line of the requirements, those of the file first.
    pub fn packages(&self) -> Vec<&str> {
        let of_file = self.requirements.iter().flat_map(|file| file.text.lines());
        of_file.chain(self.pip.iter().map(String::as_str)).collect()
    }

    /// The digest of the content: what is installed, whichever file it is written in.
    pub fn digest(&self) -> String {
        digest::of_json(&(1, self.packages(), &self.index_url, &self.commands))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> SetupSpec {
        serde_yaml::from_str(text).unwrap()
    }

    #[test]
    fn the_digest_is_that_of_the_content() {
        let torch = of("pip: [torch]");
        let requirements = Fragment { path: "needs.txt".to_owned(), text: "torch\n".to_owned() };
        let from_file = SetupSpec { requirements: Some(requirements), ..SetupSpec::default() };
        assert_eq!(torch.digest(), from_file.digest());
        for other in [
            "pip: [torch==2]",
            "pip: [torch, numpy]",
            "{pip: [torch], index_url: 'https://h/simple'}",
            "{pip: [torch], commands: ['true']}",
        ] {
            assert_ne!(torch.digest(), of(other).digest(), "{other}");
        }
    }
}
