//! The sites that the known credentials reach.

use serde_json::Value;

use super::super::config;
use super::find::{Candidate, Choice, find};
use super::sites::SITES;
use crate::error::Result;
use crate::provider::{Context, settings};
use crate::secret::Vault;

/// The settings of each site that these settings leave open. A site without bare metal counts only if it is named, or the
/// only one.
pub(crate) fn each_site(value: &Value, context: &Context) -> Result<Vec<Value>> {
    let read = config::read_settings(value)
        .map_err(|errors| settings::wrong("find the sites of the provider `chameleon`", &errors))?;
    if read.site.is_some() {
        return Ok(vec![value.clone()]);
    }
    let user_environment = &context.user_environment;
    let vault = Vault::open(&user_environment.config_dir, user_environment.keyring_bus());
    let choice = Choice { cloud: read.cloud, site: None, project: read.project };
    let mut found = find(user_environment, &vault, &choice)?;
    let has_hosts = |one: &Candidate| SITES.iter().all(|site| site.name != one.site || site.bare_metal);
    if found.iter().any(has_hosts) {
        found.retain(has_hosts);
    }
    let is_one = found.len() == 1;
    let with_site = |one: Candidate| {
        let mut settings = value.clone();
        // Before the first call, the only site may be known by its address alone.
        if let (Some(map), false) = (settings.as_object_mut(), is_one && one.credentials.region.is_none()) {
            map.insert("site".to_owned(), Value::String(one.site));
        }
        settings
    };
    Ok(found.into_iter().map(with_site).collect())
}
