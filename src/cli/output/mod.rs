//! Output for people and programs: results on stdout, progress on stderr.

mod bytes;
mod drawn;
mod error;
#[cfg(test)]
mod fuzz;
pub(crate) mod gantt;
mod json;
mod plain;
mod progress;
mod table;
mod tty;
mod ui;
mod words;

pub(crate) use bytes::Bytes;
pub(crate) use drawn::Drawn;
pub(crate) use error::print_error;
pub(crate) use json::Json;
pub(crate) use plain::Plain;
pub(crate) use progress::BytesBar;
pub(crate) use table::{Table, gpu_table};
pub(crate) use tty::Tty;
pub(crate) use ui::Ui;
