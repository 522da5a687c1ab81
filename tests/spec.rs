//! See the functions' names.
