//! Global options.

use std::path::PathBuf;

use clap::ValueEnum;

/// Options of every command.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Common options")]
pub(crate) struct Global {
    /// The cluster; default: GPUCL_CLUSTER, else ./cluster.yaml, else the only one that exists
    #[arg(short, long, global = true, value_name = "NAME")]
    pub(crate) cluster: Option<String>,
    /// Output format
    #[arg(long, global = true, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    pub(crate) output: Format,
    /// Answer yes to every question
    #[arg(short, long, global = true)]
    pub(crate) yes: bool,
    /// Print less
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// A folder of playbooks and templates that take precedence over all others
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
}

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Readable text
    Text,
    /// JSON lines, versioned: see docs/reference/json.md
    Json,
}
