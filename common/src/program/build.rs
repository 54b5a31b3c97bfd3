//! The facts of a program's build.

use std::fmt::Write as _;

/// A build of a program.
#[derive(Debug, Clone)]
pub struct Build {
    /// The program's name.
    pub name: &'static str,
    /// The commit of the sources, if the build stated it.
    pub commit: Option<&'static str>,
    /// The names and versions of libraries that decide results.
    pub components: Vec<(&'static str, String)>,
}

impl Build {
    /// The version of all programs.
    pub const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    /// Returns the commit, or `unknown`.
    #[must_use]
    pub fn commit(&self) -> &'static str {
        self.commit.filter(|commit| !commit.is_empty()).unwrap_or("unknown")
    }

    /// Returns the text of `--version`: the version, and a line `name: value` per fact.
    #[must_use]
    pub fn long_version(&self) -> String {
        let mut text = format!("{}\ncommit: {}", Self::VERSION, self.commit());
        for (name, value) in &self.components {
            let _ = write!(text, "\n{name}: {value}");
        }
        let (target, profile) = (env!("TANDEM_TARGET"), env!("TANDEM_PROFILE"));
        let _ = write!(text, "\ntarget: {target}\nprofile: {profile}");
        text
    }
}
