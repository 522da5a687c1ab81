//! A provider's manifest, readable without opening the provider.

use serde::{Deserialize, Serialize};

use crate::error::{Doing as _, Error, ErrorKind, Result};

/// A provider's description of itself: `provider.yaml` in its folder.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The provider's name, equal to its folder's.
    pub name: String,
    /// One line for `gpucl provider list`.
    pub summary: String,
    /// The environment variables with its secrets and related settings; a trailing `*` matches the rest of a
    /// name. A deadline keeps a copy of those that are set.
    #[serde(default)]
    pub secrets: Vec<String>,
    /// The path of its guide, relative to the project root.
    pub docs: String,
}

impl Manifest {
    /// Reads the text of a `provider.yaml`, and checks that its name equals the folder's.
    ///
    /// Call it with `include_str!("provider.yaml")` and `module_path!()` from the folder's `mod.rs`, whose module has
    /// the folder's name.
    pub fn parse(text: &str, module_path: &str) -> Result<Self> {
        let folder = module_path.rsplit("::").next().unwrap_or(module_path);
        let doing = || format!("read providers/{folder}/provider.yaml");
        let manifest: Self = serde_yaml::from_str(text).doing(ErrorKind::Internal, doing)?;
        if manifest.name == folder {
            Ok(manifest)
        } else {
            Err(Error::new(ErrorKind::Internal, doing())
                .because(format!("it says `name: {}`, but its folder is `{folder}`", manifest.name))
                .hint(format!("write `name: {folder}` in providers/{folder}/provider.yaml")))
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
        assert!(error.to_string().contains("it says `name: acme`, but its folder is `other`"), "{error}");
    }

    #[test]
    fn an_unknown_key_is_an_error() {
        let error = Manifest::parse(&format!("{TEXT}sumary: x\n"), "gpucl::providers::acme").unwrap_err();
        assert!(error.to_string().contains("sumary"), "{error}");
    }
}
