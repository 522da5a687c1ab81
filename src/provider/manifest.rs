//! What a provider says of itself without being opened.

use serde::{Deserialize, Serialize};

use crate::error::{Doing as _, Error, ErrorKind, Result};

/// What a provider says of itself without being opened: `provider.yaml` of its folder.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Its name, which is its folder's.
    pub name: String,
    /// One line for `gpucl provider list`.
    pub summary: String,
    /// The secrets it needs, and what goes with them, by the names of their environment variables; a `*` at the end of one stands
    /// for the rest of the name. A deadline keeps a copy of those that are set.
    #[serde(default)]
    pub secrets: Vec<String>,
    /// Where its guide is, from the project's root.
    pub docs: String,
}

impl Manifest {
    /// Reads the text of a `provider.yaml`, and checks that the name in it is that of the folder.
    ///
    /// Called with `include_str!("provider.yaml")` and `module_path!()` from the folder's `mod.rs`, whose module is
    /// named after the folder.
    pub fn parse(text: &str, module_path: &str) -> Result<Self> {
        let folder = module_path.rsplit("::").next().unwrap_or(module_path);
        let doing = || format!("read providers/{folder}/provider.yaml");
        let manifest: Self = serde_yaml::from_str(text).doing(ErrorKind::Internal, doing)?;
        if manifest.name == folder {
            Ok(manifest)
        } else {
            Err(Error::new(ErrorKind::Internal, doing())
                .because(format!("it says `name: {}`, and its folder is `{folder}`", manifest.name))
                .hint(format!("write `name: {folder}` into providers/{folder}/provider.yaml")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name: acme\nsummary: hosts of acme\ndocs: providers/acme/README.md\n";

    #[test]
    fn the_name_must_be_the_folders() {
        assert_eq!(Manifest::parse(TEXT, "gpucl::providers::acme").unwrap().name, "acme");
        let error = Manifest::parse(TEXT, "gpucl::providers::other").unwrap_err();
        assert!(error.to_string().contains("it says `name: acme`, and its folder is `other`"), "{error}");
    }

    #[test]
    fn an_unknown_key_is_an_error() {
        let error = Manifest::parse(&format!("{TEXT}sumary: x\n"), "gpucl::providers::acme").unwrap_err();
        assert!(error.to_string().contains("sumary"), "{error}");
    }
}
