//! Plain tables that fit the terminal.

use comfy_table::{ContentArrangement, presets};

/// A table with a header, without lines.
pub(crate) struct Table(comfy_table::Table);

impl Table {
    pub(crate) fn new(header: &[&str]) -> Self {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(header.iter().map(|name| name.to_uppercase()));
        Self(table)
    }

    pub(crate) fn row<T: ToString>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.0.add_row(cells.into_iter().map(|cell| cell.to_string()).collect::<Vec<_>>());
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut first = true;
        for line in self.0.lines() {
            if !first {
                out.write_str("\n")?;
            }
            first = false;
            out.write_str(line.trim_end())?;
        }
        Ok(())
    }
}
