//! The portal: a reverse proxy for a cluster's web pages on this machine's loopback. It demands a key and adds
//! credentials.
//!
//! One listener per page, since pages expect to be at the root of their address. Each run has a random name that its
//! pages share: `dashboard.RANDOM.localhost`, `grafana.RANDOM.localhost`. Browsers scope cookies by host name, not by
//! port, so the run's own name keeps its cookies from every other server on this machine; and since `localhost` is a
//! public suffix, the pages of a run are one site, and everything else is cross-site. Key and name live as long as the
//! run.
//!
//! A request is let through if it names this page (`Host`), comes from no other page (`Origin`, `Sec-Fetch-Site`), and
//! carries the cookie that was issued for the key. At 127.0.0.1, which has no name, only the page's own credential
//! counts.

mod answer;
mod browser;
mod gate;
mod onward;
mod page;
mod serve;

pub(crate) use browser::browser;
pub use browser::{Opener, open_browser};
pub use page::{Down, Page, PortalRun, Question, Upstream};
pub use serve::Portal;
