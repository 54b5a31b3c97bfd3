//! Tools of the machine.

use std::env;

/// Returns true if a program is in a folder of PATH, or in one of those for administrators.
pub(crate) fn is_installed(tool: &str) -> bool {
    let folders = env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(Into::into);
    env::split_paths(&folders).chain(system).any(|folder| folder.join(tool).is_file())
}
