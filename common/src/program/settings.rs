//! `serve --print-config`: every setting of a command, with its origin.

use std::any::TypeId;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use tonic::transport::Uri;

use super::build::Build;
use super::invocation::Invocation;

/// Flags that end the command before anything is served.
const NO_SETTINGS: [&str; 4] = ["help", "version", "print_config", "check"];

impl Invocation {
    /// Returns the settings of the command in force, by the names of their flags. Each has its
    /// value and its origin: `flag`, `environment` or `default`. A setting from the environment has
    /// the variable's name too. A setting without a value is null.
    #[must_use]
    pub fn settings(&self) -> Map<String, Value> {
        let Some((name, matches)) = self.matches.subcommand() else { return Map::new() };
        let command = self.command.find_subcommand(name).into_iter();
        let args = command.flat_map(|command| command.get_arguments());
        let settings = args.filter(|arg| !NO_SETTINGS.contains(&arg.get_id().as_str()));
        let settings = settings.filter_map(|arg| Some((arg.get_long()?.to_owned(), setting(arg, matches)))).collect();
        let title = json!({ "program": self.command.get_name(), "version": Build::VERSION, "command": name });
        let Value::Object(mut all) = title else { return Map::new() };
        all.insert("settings".to_owned(), Value::Object(settings));
        all
    }
}

/// Returns 12 hexadecimal digits of a hash of settings. Services with equal settings have the same.
#[must_use]
pub(crate) fn fingerprint(settings: &Map<String, Value>) -> String {
    let hash = Sha256::digest(Value::Object(settings.clone()).to_string());
    hash.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

fn setting(arg: &Arg, matches: &ArgMatches) -> Value {
    let id = arg.get_id().as_str();
    let texts = matches.get_raw(id).into_iter().flatten();
    let mut values: Vec<Value> = texts.map(|text| value(arg, &text.to_string_lossy())).collect();
    let is_list = arg.get_value_delimiter().is_some();
    let value = if is_list { Value::Array(values) } else { values.pop().unwrap_or_default() };
    match (matches.value_source(id), arg.get_env()) {
        (Some(ValueSource::CommandLine), _) => json!({ "value": value, "origin": "flag" }),
        (Some(ValueSource::EnvVariable), Some(variable)) => {
            json!({ "value": value, "origin": "environment", "variable": variable.to_string_lossy() })
        }
        _ => json!({ "value": value, "origin": "default" }),
    }
}

/// Returns numbers and booleans as such, and addresses without a password.
fn value(arg: &Arg, text: &str) -> Value {
    let kind = arg.get_value_parser().type_id();
    let plain =
        [TypeId::of::<usize>(), TypeId::of::<u64>(), TypeId::of::<u32>(), TypeId::of::<f64>(), TypeId::of::<bool>()];
    let parsed = plain.iter().any(|plain| kind == *plain).then(|| serde_json::from_str(text).ok()).flatten();
    parsed.unwrap_or_else(|| {
        let is_address = kind == TypeId::of::<Uri>();
        Value::from(if is_address { without_user(text) } else { text.to_owned() })
    })
}

/// Replaces the user and password of `http://USER:PASSWORD@HOST:PORT`.
fn without_user(address: &str) -> String {
    let (scheme, rest) = address.split_once("://").map_or(("", address), |(scheme, rest)| (scheme, rest));
    match rest.rsplit_once('@') {
        Some((_, host)) if scheme.is_empty() => format!("***@{host}"),
        Some((_, host)) => format!("{scheme}://***@{host}"),
        None => address.to_owned(),
    }
}
