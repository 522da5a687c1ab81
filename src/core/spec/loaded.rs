//! What loading a spec results in.

use super::{Places, Spec};

/// A spec, with the positions of its keys and values.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The validated spec with all defaults filled in.
    pub spec: Spec,
    /// The positions in the file, for errors that are found later.
    pub places: Places,
}
