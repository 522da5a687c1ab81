//! Ending a host's project, and leaving the host as it was found. Each is one script, run by one exec as root.

use super::{CleanOptions, closed_table, firewall_table, home_of};
use crate::render::quote;

const STOP: &str = include_str!("shell/stop.sh");
const CLEAN: &str = include_str!("shell/clean.sh");

/// The script that ends the project of this tag and keeps its volumes, its files and all that was installed.
///
/// Prints what it ended, a line each behind `::removed `, and `::stopped` when nothing of it runs any more.
pub fn stop_script(tag: &str) -> String {
    format!("{}{STOP}if stop_project; then echo ::stopped; fi\n", header(tag))
}

/// The script that removes all that carries this tag: containers, volumes, networks, built images, firewall table, files.
///
/// Prints what it removed, a line each behind `::removed `; what stays on purpose behind `::kept `; what could not be removed
/// behind `::left `; and at last `::clean` when nothing is left. May be run again at any time.
pub fn clean_script(tag: &str, options: CleanOptions) -> String {
    let set = |name: &str, is: bool| format!("{name}={}\n", if is { "1" } else { "" });
    let flags = set("keep_data", options.keep_data);
    let undo = super::undo_script(tag, options.purge);
    format!("{}{flags}{STOP}undo() {{\n{undo}}}\n{CLEAN}clean\n", header(tag))
}

/// What every script of a tag begins with.
pub(super) fn header(tag: &str) -> String {
    let (table, closed) = (firewall_table(tag), closed_table(tag));
    format!("tag={}\nhome={}\ntable={table}\nclosed={closed}\n", quote(tag), quote(&home_of(tag)))
}
