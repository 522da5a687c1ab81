//! Playbooks and templates as layered data files, and their rendering.

mod eject;
mod library;
mod template;

pub use eject::{Template, eject, templates};
pub use library::{Library, Origin, own_files};
pub use template::{quote, quote_path, render};
