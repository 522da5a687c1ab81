//! The providers by name.

use super::Factory;
use crate::error::{Error, ErrorKind, Result};
use crate::providers::BUILTIN;
use crate::util::near::nearest;

/// The names of all providers.
pub fn names() -> Vec<String> {
    BUILTIN.iter().filter_map(|factory| factory.manifest().ok()).map(|manifest| manifest.name).collect()
}

/// Finds a provider by its name.
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
