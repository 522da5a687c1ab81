//! The provider of a lease: from the command line's flags, or from the journal.

use serde_json::Value;

use crate::error::{Error, ErrorKind, Result};
use crate::provider::{Context, Provider};
use crate::providers;
use crate::state::LeaseSource;

/// Opens the provider of a source.
///
/// # Errors
/// If there is no such provider, or its settings are wrong: then the flag that sets each is named.
pub fn open_source(source: &LeaseSource, context: &Context) -> Result<Box<dyn Provider>> {
    let factory = providers::find(&source.provider)?;
    let mut settings = source.settings.clone();
    // A site found earlier still applies, whatever the environment says now.
    if let (Some(map), false) = (settings.as_object_mut(), source.place.is_empty())
        && !map.contains_key("site")
    {
        let mut with_site = map.clone();
        with_site.insert("site".to_owned(), Value::String(source.place.clone()));
        if factory.check(&Value::Object(with_site.clone()), &[]).is_empty() {
            *map = with_site;
        }
    }
    let Some(wrong) = factory.check(&settings, &[]).into_iter().next() else {
        return factory.open(&settings, context);
    };
    let flag = match wrong.path.as_str() {
        "" => String::new(),
        "host" => "--login: ".to_owned(),
        path => format!("--{path}: "),
    };
    let error = Error::new(ErrorKind::Usage, format!("open the provider `{}`", source.provider))
        .because(format!("{flag}{}", wrong.message));
    Err(if wrong.known.is_empty() { error } else { error.hint(format!("known here: {}", wrong.known.join(", "))) })
}
