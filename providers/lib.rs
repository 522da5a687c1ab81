//! The registry of providers: the folders of `providers/`, listed by `build.rs`.

#[cfg(test)]
mod fuzz;

use gpucl_core::{error, event, host, money, name, playbook, provider, render, secret, spec, util};

use crate::error::{Error, ErrorKind, Result};
use crate::provider::Factory;
use crate::util::near::nearest;

include!(concat!(env!("OUT_DIR"), "/providers.rs"));

/// All built-in providers, sorted by name.
pub fn all() -> &'static [&'static dyn Factory] {
    BUILTIN
}

/// The names of all built-in providers, sorted.
pub fn names() -> Vec<String> {
    BUILTIN.iter().filter_map(|factory| factory.manifest().ok()).map(|manifest| manifest.name).collect()
}

/// Finds a provider by name; the error for an unknown one lists all providers and suggests the nearest.
pub fn find(name: &str) -> Result<&'static dyn Factory> {
    for factory in BUILTIN {
        if factory.manifest()?.name == name {
            return Ok(*factory);
        }
    }
    let known = names();
    let mut error = Error::new(ErrorKind::Usage, format!("find the provider `{name}`"))
        .because("no provider has that name")
        .hint(format!("the providers are: {}", known.join(", ")));
    if let Some(near) = nearest(name, known.iter().map(String::as_str)) {
        error = error.hint(format!("did you mean `{near}`?"));
    }
    Err(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_provider_can_be_read_and_has_its_guide() {
        for factory in all() {
            let manifest = factory.manifest().unwrap();
            let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
            assert!(root.join(&manifest.docs).is_file(), "{} has no {}", manifest.name, manifest.docs);
            assert!(find(&manifest.name).is_ok());
        }
    }

    #[test]
    fn a_misspelt_name_gets_the_near_one() {
        let Err(error) = find("locla") else { panic!("`locla` was found") };
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert!(error.hints().iter().any(|hint| hint.contains("`local`")), "{error}");
    }
}
