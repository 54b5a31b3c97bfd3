//! Variables of the environment that look like settings and are none.

use std::env;

use clap::Command;

use super::invocation::Invocation;
use crate::suggestion::nearest;

/// The prefix of the variables of settings.
const PREFIX: &str = "TANDEM_";
/// Ends of the variables that Kubernetes sets for a service named `tandem-…`.
const OF_SERVICES: [&str; 5] = ["_HOST", "_PORT", "_ADDR", "_PROTO", "_TCP"];
/// Parts of such variables for a port with a name.
const OF_PORTS: &str = "_SERVICE_PORT_";

impl Invocation {
    /// Returns a sentence for each variable `TANDEM_…` that is no setting of this program, with the nearest name.
    #[must_use]
    pub fn unknown_variables(&self) -> Vec<String> {
        let mut known = Vec::new();
        add_variables(&self.command, &mut known);
        let lower: Vec<String> = known.iter().map(|name| name.to_ascii_lowercase()).collect();
        let lower: Vec<&str> = lower.iter().map(String::as_str).collect();
        let given = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let is_service = |name: &str| OF_SERVICES.iter().any(|end| name.ends_with(end)) || name.contains(OF_PORTS);
        let unknown = given.filter(|name| name.starts_with(PREFIX) && !is_service(name) && !known.contains(name));
        let sentence = |name: String| {
            let near = longer(&name, &lower).or_else(|| nearest(&name, &lower));
            let suggestion = near.map(|near| format!("; did you mean {}?", near.to_ascii_uppercase()));
            format!("the variable {name} is no setting{}", suggestion.unwrap_or_default())
        };
        unknown.map(sentence).collect()
    }
}

/// Returns the first known name with further words before those of a name, as TANDEM_RENDER_LISTEN for TANDEM_LISTEN.
fn longer<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let end = format!("_{}", name.strip_prefix(PREFIX)?.to_ascii_lowercase());
    known.iter().copied().find(|known| known.ends_with(&end))
}

fn add_variables(command: &Command, known: &mut Vec<String>) {
    known.extend(command.get_arguments().filter_map(|arg| Some(arg.get_env()?.to_string_lossy().into_owned())));
    command.get_subcommands().for_each(|inner| add_variables(inner, known));
}
