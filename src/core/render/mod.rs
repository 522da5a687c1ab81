//! Playbooks and templates as layered data files, and their rendering; the examples.

mod eject;
mod example;
mod library;
mod template;

pub use eject::{Template, eject, templates};
pub use example::{Example, copy_example, examples};
pub use library::{Library, Origin, own_files};
pub use template::{quote, quote_path, render, write_files};
