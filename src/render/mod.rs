//! The layered data files (playbooks, templates) and their rendering.

mod library;
mod template;

pub use library::{Library, Origin};
pub use template::{quote, quote_path, render};
