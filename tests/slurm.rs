//! The provider `slurm` on a real Slurm (`testbed/slurm`): from the queue to ready, and nothing left.

mod accounts;
mod allocation;
mod contract;
mod crash;
mod limit;
mod losses;
mod shared;
mod site;
mod testbed;
mod trouble;
mod whole;
