//! Guarantees of the contract: reasons, the registry, the validation of templates.

mod error_texts;
mod field_paths;
mod reasons;
mod registry;
mod validate_template;
