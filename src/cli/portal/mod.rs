//! The portal: every web page of a cluster on this machine's loopback, behind a key, with its credential put in.
//!
//! One listener per page, since pages live at the root of their address. A browser shows the key once and then a cookie;
//! the page's own credential never reaches the browser. A request is let through when it names this very listener
//! (`Host`), comes from no other page (`Origin`, `Sec-Fetch-Site`), and carries the key, or the page's own credential.

mod answer;
mod browser;
mod head;
mod memory;
mod serve;

pub use browser::{Opener, open_browser};
pub use memory::{PortalMemory, load, save};
pub use serve::{Page, Portal};
