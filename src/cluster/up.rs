//! `up`: from nothing, or from whatever exists, to a verified cluster.

use super::open::{same_file, same_kind};
use super::{Settings, UpOptions, UpOutcome, backend};
use crate::error::Result;
use crate::spec::Loaded;
use crate::state::{Lock, Store};

/// Brings a cluster to what its spec says, and verifies it.
pub async fn up(settings: &Settings, loaded: &Loaded, options: &UpOptions) -> Result<UpOutcome> {
    let name = &loaded.spec.name;
    let _lock = Lock::take(&settings.paths, name, "up")?;
    let known = Store::open(&settings.paths, name)?;
    if let Some(known) = &known {
        same_kind(known.state(), &loaded.spec)?;
        if !options.new_spec {
            same_file(known.state(), options.path.as_deref())?;
        }
    }
    backend::of(&loaded.spec)?.up(settings, loaded, options, known).await
}
