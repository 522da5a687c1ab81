//! Ends a host's project, and restores the host as it was found. Each is one script, run in one exec as root.

use super::{CleanOptions, closed_table, firewall_table, home_of};
use crate::render::quote;

const STOP: &str = include_str!("shell/stop.sh");
const CLEAN: &str = include_str!("shell/clean.sh");

/// The script that ends the project of this tag and keeps its volumes, its files and everything installed.
///
/// Prints a `::removed ` line for each thing that it ended, and `::stopped` when nothing of the project runs any more.
pub fn stop_script(tag: &str) -> String {
    format!("{}ends_cluster=1\n{STOP}if stop_project; then echo ::stopped; fi\n", header(tag))
}

/// The idempotent script that removes everything with this tag: containers, volumes, networks, built images, firewall
/// table, files.
///
/// Prints a `::removed ` line for each thing removed, `::kept ` for what stays on purpose, `::left ` for what could not
/// be removed, and at the end `::clean` when nothing is left.
pub fn clean_script(tag: &str, options: CleanOptions) -> String {
    let set = |name: &str, is: bool| format!("{name}={}\n", if is { "1" } else { "" });
    let flags = set("ends_cluster", options.ends_cluster) + &set("keep_data", options.keep_data);
    let undo = super::undo_script(tag, options.purge);
    format!("{}{flags}{STOP}undo() {{\n{undo}}}\n{CLEAN}clean\n", header(tag))
}

/// The beginning of every script of a tag.
pub(super) fn header(tag: &str) -> String {
    let (table, closed) = (firewall_table(tag), closed_table(tag));
    format!("tag={}\nhome={}\ntable={table}\nclosed={closed}\n", quote(tag), quote(&home_of(tag)))
}
