//! Variables of the environment that look like settings and are none.

use std::env;

use clap::Command;

use super::invocation::Invocation;
use crate::suggestion::nearest;

/// The prefix of the variables of settings.
const PREFIX: &str = "TANDEM_";
/// The prefixes of the variables that only one program has. Both may be started with the same environment.
const OF_PROGRAMS: [(&str, &str); 2] = [("gen-svc", "TANDEM_GEN_"), ("render-svc", "TANDEM_RENDER_")];
/// Ends of the variables that Kubernetes sets for a service named `tandem-…`.
const OF_SERVICES: [&str; 5] = ["_HOST", "_PORT", "_ADDR", "_PROTO", "_TCP"];
/// Parts of such variables for a port with a name.
const OF_PORTS: &str = "_SERVICE_PORT_";

impl Invocation {
    /// Writes each of [`Self::unknown_variables`] as a warning to standard error.
    pub fn print_unknown_variables(&self) {
        let program = self.command.get_name();
        self.unknown_variables().iter().for_each(|problem| eprintln!("{program}: warning: {problem}"));
    }

    /// Returns a sentence for each variable `TANDEM_…` that is no setting of this program, with the nearest name.
    #[must_use]
    pub fn unknown_variables(&self) -> Vec<String> {
        let mut known = Vec::new();
        add_variables(&self.command, &mut known);
        // Without the prefix, which would make all names similar.
        let words = known.iter().filter_map(|name| name.strip_prefix(PREFIX));
        let lower: Vec<String> = words.map(str::to_ascii_lowercase).collect();
        let lower: Vec<&str> = lower.iter().map(String::as_str).collect();
        let given = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let is_service = |name: &str| OF_SERVICES.iter().any(|end| name.ends_with(end)) || name.contains(OF_PORTS);
        let is_other = |name: &str| {
            OF_PROGRAMS.iter().any(|(program, prefix)| *program != self.command.get_name() && name.starts_with(prefix))
        };
        let is_other = |name: &str| is_service(name) || is_other(name);
        let unknown = given.filter(|name| name.starts_with(PREFIX) && !is_other(name) && !known.contains(name));
        let sentence = |name: String| {
            let word = name.strip_prefix(PREFIX).unwrap_or_default();
            let near = longer(word, &lower).or_else(|| nearest(word, &lower));
            let suggestion = near.map(|near| format!("; did you mean {PREFIX}{}?", near.to_ascii_uppercase()));
            format!("the variable {name} is no setting{}", suggestion.unwrap_or_default())
        };
        unknown.map(sentence).collect()
    }
}

/// Returns the first known name with further words before those of a name, as TANDEM_RENDER_LISTEN for TANDEM_LISTEN.
fn longer<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let end = format!("_{}", word.to_ascii_lowercase());
    known.iter().copied().find(|known| known.ends_with(&end))
}

fn add_variables(command: &Command, known: &mut Vec<String>) {
    known.extend(command.get_arguments().filter_map(|arg| Some(arg.get_env()?.to_string_lossy().into_owned())));
    command.get_subcommands().for_each(|inner| add_variables(inner, known));
}
