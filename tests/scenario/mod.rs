//! One story per file, on real clusters of this machine.

mod everyday;
mod examples;
mod from_nothing_to_nothing;
mod gpus;
mod one_run;
mod side_by_side;
