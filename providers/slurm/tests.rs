//! Tests of the settings and the batch script; `tests/slurm.rs` tests the provider on a real Slurm.
