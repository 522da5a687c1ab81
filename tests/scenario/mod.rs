//! One obligation per function.
