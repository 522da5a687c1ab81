//! Ending a host's project, and leaving the host as it was found. Each is one script, run by one exec as root.

/// What `down` leaves on a host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CleanOptions {
    /// Keep the data volumes.
    pub keep_data: bool,
    /// Remove what was installed for us as well.
    pub purge: bool,
}

/// The script that ends the project of this tag and keeps its volumes, its files and all that was installed.
///
/// Prints what it ended, a line each behind `::removed `, and `::stopped` when nothing of it runs any more.
pub fn stop_script(tag: &str) -> String {
    let _ = tag;
    String::new()
}

/// The script that removes all that carries this tag: containers, volumes, networks, built images, firewall table, files.
///
/// Prints what it removed, a line each behind `::removed `; what stays on purpose behind `::kept `; what could not be removed
/// behind `::left `; and at last `::clean` when a second look saw nothing more. May be run again at any time.
pub fn clean_script(tag: &str, options: CleanOptions) -> String {
    let _ = (tag, options);
    String::new()
}
