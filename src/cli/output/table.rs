//! Plain tables that fit the terminal.

use comfy_table::{ContentArrangement, presets};

use crate::event::WorkerGpus;
use crate::util::text::printable_line;

/// A table with a header row and no rules.
pub(crate) struct Table(comfy_table::Table);

impl Table {
    pub(crate) fn new(header: &[&str]) -> Self {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(header.iter().map(|name| name.to_uppercase()));
        Self(table)
    }

    pub(crate) fn row<T: ToString>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.0
            .add_row(cells.into_iter().map(|cell| printable_line(&cell.to_string()).into_owned()).collect::<Vec<_>>());
    }
}

/// The GPUs that workers were observed to own, one per row; `None` if there are none.
pub(crate) fn gpu_table(observed: &[WorkerGpus]) -> Option<Table> {
    let mut table = Table::new(&["host", "worker", "gpu", "product", "proof"]);
    for one in observed {
        for gpu in &one.gpus {
            table.row([&one.host, &one.worker, gpu, &one.product, &one.proof]);
        }
    }
    observed.iter().any(|one| !one.gpus.is_empty()).then_some(table)
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
