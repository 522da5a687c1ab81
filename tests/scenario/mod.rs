//! One story per file, on real clusters of this machine.

pub(crate) mod by_hand;
mod data;
mod everyday;
mod examples;
mod from_nothing_to_nothing;
mod gpus;
mod mlflow;
mod mlflow_trouble;
mod one_run;
mod processes;
mod real_gpus;
mod serve;
mod serve_trouble;
mod setup;
mod side_by_side;
pub(crate) mod slot;
pub(crate) mod story;
mod torch;
