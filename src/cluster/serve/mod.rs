//! The applications of Serve of a cluster: deployed, rolled back, deleted, and the way to them.

mod bring;
mod history;
mod served;
mod way;

pub use self::bring::Brought;
use self::history::History;
pub use self::served::{Served, named};
pub use self::way::{Way, port};
