//! What the contract promises: reasons, the registry, the validation of templates.

mod reasons;
mod registry;
mod validate_template;
