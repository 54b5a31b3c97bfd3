//! The parts of the command line that both programs have: `--version`, `serve --print-config`,
//! shell completions and manual pages.

mod args;
mod build;
mod invocation;
mod settings;
mod variables;

pub use args::{CompletionsArgs, DryRunArgs, ManArgs};
pub use build::Build;
pub use invocation::Invocation;
pub(crate) use settings::fingerprint;
