//! The applications of Serve of a cluster: deployed, rolled back, deleted, and the way to them.

mod bring;
mod history;
mod of_spec;
mod packages;
mod secrets;
mod served;
mod way;

pub use self::bring::Brought;
use self::history::History;
pub(in crate::cluster) use self::of_spec::{bring_of_spec, check_of_spec, plan_of_spec};
pub(in crate::cluster) use self::secrets::check_secrets_of_spec;
pub use self::secrets::{SecretNames, SecretValues};
pub use self::served::{Served, named};
pub use self::way::{Way, port};
