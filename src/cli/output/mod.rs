//! What a person or a program is shown: results on stdout, progress on stderr.

mod error;
mod table;
mod ui;

pub(crate) use error::print_error;
pub(crate) use table::Table;
pub(crate) use ui::Ui;
