//! The arguments that both programs have.

use std::path::PathBuf;

use clap_complete::Shell;

/// Modes of `serve` that end before it listens.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
#[command(next_help_heading = "Dry run")]
pub struct DryRunArgs {
    /// Print every setting in force with its origin, as JSON, and exit. Nothing is loaded
    ///
    /// The origin is flag, environment or default. Files are named, not shown: no secret is
    /// printed.
    #[arg(long, conflicts_with = "check")]
    pub print_config: bool,

    /// Validate the settings, read the TLS and token files, load the models, and exit without
    /// listening
    ///
    /// Prints one line with the models that would be served, and exits with 0. Otherwise the error
    /// is on standard error, and the exit code is 1.
    #[arg(long)]
    pub check: bool,
}

/// The shell of a completion script.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct CompletionsArgs {
    /// Shell
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// The destination of the manual pages.
#[derive(Debug, Clone, clap::Args)]
pub struct ManArgs {
    /// Folder for all pages, one per command [default: the main page, on standard output]
    #[arg(value_name = "FOLDER")]
    pub folder: Option<PathBuf>,
}
