//! The ports of a cluster's pages on the user's machine.

use std::net::TcpListener;

use crate::error::{Error, ErrorKind, Result};
use crate::state::Pages;

/// Chooses a free port of the loopback for each of these pages.
pub(super) fn choose_pages(names: &[&str]) -> Result<Pages> {
    let mut pages = Pages::new();
    // Listeners are held until all ports are chosen, so that none is chosen twice.
    let mut held = Vec::new();
    for name in names {
        let listener = TcpListener::bind(("127.0.0.1", 0));
        let port = listener.as_ref().ok().and_then(|listener| Some(listener.local_addr().ok()?.port()));
        let port = port.ok_or_else(|| {
            Error::new(ErrorKind::Host, format!("find a free port for the page {name}"))
                .because("this machine's loopback has none")
        })?;
        held.push(listener);
        pages.insert((*name).to_owned(), port);
    }
    Ok(pages)
}
