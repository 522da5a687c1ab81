//! One obligation per function, on real clusters of this machine.

mod first_up;
