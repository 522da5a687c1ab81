//! `up`: from nothing, or from whatever exists, to a verified cluster.

use super::machine::refuse_other_machine;
use super::open::{same_file, same_kind};
use super::pin::{Pins, pinned};
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
        refuse_other_machine(&settings.paths, known.state(), "bring up")?;
        same_kind(known.state(), &loaded.spec)?;
        if !options.new_spec {
            same_file(known.state(), options.path.as_deref())?;
        }
    }
    let pins = if options.update_files { Pins::Update } else { Pins::Keep };
    let loaded = pinned(loaded, known.as_ref().and_then(|known| known.state().spec.as_ref()), pins).await?;
    backend::of(&loaded.spec)?.up(settings, &loaded, options, known).await
}
