//! Plans compared by their text.
