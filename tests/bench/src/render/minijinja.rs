//! minijinja alone, in the usual configuration for chat templates.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, merge_maps};
use minijinja::{Environment, Error, ErrorKind, Value, context};
use minijinja_contrib::pycompat::unknown_method_callback;
use serde_json::Value as Json;

use super::cases::Set;

/// One environment per model, none if the template does not compile.
#[derive(Debug)]
pub(crate) struct Minijinja {
    environments: Vec<Option<Environment<'static>>>,
}

impl Minijinja {
    pub(crate) fn new(set: &Set) -> Self {
        Self { environments: set.models.iter().map(|model| environment(&model.template)).collect() }
    }

    /// Renders a request. Returns nothing if that fails.
    pub(crate) fn render(&self, set: &Set, case: usize) -> Option<String> {
        let case = &set.cases[case];
        let environment = self.environments[case.model].as_ref()?;
        let special = &set.models[case.model].special_tokens;
        let request: Json = serde_json::from_str(&case.request).ok()?;
        let args = request.get("template_args").map(value).unwrap_or_default();
        let variables = context! {
            messages => value(&request["messages"]),
            tools => value(&request["tools"]),
            documents => value(&request["documents"]),
            add_generation_prompt => request.get("add_generation_prompt").is_none_or(|wanted| *wanted == true),
            ..merge_maps([args, value(special)]),
        };
        environment.get_template("chat").ok()?.render(variables).ok()
    }
}

fn value(json: impl serde::Serialize) -> Value {
    Value::from(Serde(json))
}

fn environment(template: &str) -> Option<Environment<'static>> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().ok()?);
    environment.set_unknown_method_callback(unknown_method_callback);
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_function("strftime_now", |_format: String| "04 Jul 2025");
    environment.add_template_owned("chat", template.to_owned()).ok()?;
    Some(environment)
}
