//! Stands in until there are tests of the whole.
