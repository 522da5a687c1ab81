//! What every command takes.

use std::path::PathBuf;

use clap::ValueEnum;

/// What every command takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Global {
    /// The cluster meant; else GPUCL_CLUSTER, else ./cluster.yaml, else the only one there is
    #[arg(short, long, global = true, value_name = "NAME")]
    pub(crate) cluster: Option<String>,
    /// How results are printed
    #[arg(long, global = true, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    pub(crate) output: Format,
    /// Answer yes to every question
    #[arg(short, long, global = true)]
    pub(crate) yes: bool,
    /// Show less
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// A folder of playbooks and templates that come before all others
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
}

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// JSON lines, versioned: see docs/reference/json.md
    Json,
}
