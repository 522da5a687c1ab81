//! Each behavior of the stand-in, as documented or as reported by users.

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
