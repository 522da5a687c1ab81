//! Each behaviour, as the document has it or as it was told from the field.

mod accounts;
mod client;
mod contract;
mod faults;
mod firewall;
mod hosts;
mod launches;
mod life;
mod limits;
mod own;
mod storage;
