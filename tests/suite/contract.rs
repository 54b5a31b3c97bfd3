//! Guarantees of the contract: reasons, the registry, the validation of templates, the client packages.

mod clients;
mod error_texts;
mod field_paths;
mod reasons;
mod registry;
mod validate_template;
