//! The commands and the API of the pinned Ray.
