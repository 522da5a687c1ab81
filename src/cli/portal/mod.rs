//! The portal: every web page of a cluster on this machine's loopback, behind a key, with its credential put in.
//!
//! One listener per page, since pages live at the root of their address. Each run has a random name that its pages share:
//! `dashboard.RANDOM.localhost`, `grafana.RANDOM.localhost`. Browsers keep cookies by name and not by port, so a name of its
//! own is what keeps ours from every other server of this machine; and as `localhost` is a public suffix, the pages of a run
//! are one site, and all else is another one. The key is as old as the run, and so is the name.
//!
//! A request is let through when it names this very page (`Host`), comes from no other page (`Origin`, `Sec-Fetch-Site`), and
//! carries the cookie that the key was changed for. At 127.0.0.1, which has no name, only the page's own credential counts.

mod answer;
mod browser;
mod gate;
mod onward;
mod page;
mod serve;

pub use browser::{Opener, open_browser};
pub use page::{Page, Run, Upstream};
pub use serve::Portal;
