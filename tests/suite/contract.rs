//! Guarantees of the contract: reasons, the registry, the validation of templates, the client packages, the pages of the documentation.

mod chart_flags;
mod clients;
mod engine_fields;
mod error_texts;
mod field_paths;
mod model_table;
mod pages;
mod reasons;
mod registry;
mod validate_template;
