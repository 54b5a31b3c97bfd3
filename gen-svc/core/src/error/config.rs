//! The error of a setting in a model's config. It imports no other module, so that `models` can raise
//! it and the errors of loads and requests can contain it.

/// The error of a setting that is missing, malformed or not supported.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A required setting is missing.
    #[error("missing field `{name}`")]
    Missing {
        /// The name in `config.json`.
        name: &'static str,
    },
    /// A setting has the wrong type.
    #[error("{name} should be {expected}, but is {found}")]
    Wrong {
        /// The name in `config.json`.
        name: &'static str,
        /// The type.
        expected: String,
        /// The value.
        found: String,
    },
    /// A value is not supported.
    #[error("{name} = {value} is not supported")]
    Unsupported {
        /// The name in `config.json`.
        name: &'static str,
        value: String,
    },
}
