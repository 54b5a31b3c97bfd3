//! Rendering without a server: an adapter's input, and the answer of the command line.

use render_svc::adapter::Input;
use render_svc::catalog::ModelTable;
use render_svc::cli;
use render_svc::conversation::Conversation;
use render_svc::limits::Limits;
use render_svc::render::render;
use serde_json::Value;
use tandem_template::LocalTime;

/// A request to an adapter, from a JSON object with `messages`, `tools`, `documents` and
/// `template_args`.
#[derive(Debug)]
pub struct AdapterRequest {
    conversation: Conversation,
    add_generation_prompt: bool,
    continued_field: Option<String>,
    is_normalized: bool,
}

impl AdapterRequest {
    /// Reads a request from JSON. The keys `continue_final_message` and `add_generation_prompt`,
    /// with any value, continue the last message and omit the generation prompt. Text names the
    /// field to continue. The policy is CAPABILITY, unless `normalization` is "none".
    ///
    /// # Panics
    /// If there are no messages.
    #[must_use]
    pub fn new(request: &Value) -> Self {
        let continued = request.get("continue_final_message");
        let continued_field = continued.map(|field| field.as_str().unwrap_or("content").to_owned());
        Self {
            conversation: Conversation {
                messages: request["messages"].as_array().expect("the request has a list of messages").clone(),
                tools: request.get("tools").cloned(),
                documents: request.get("documents").cloned(),
                template_args: request.get("template_args").and_then(Value::as_object).cloned().unwrap_or_default(),
            },
            add_generation_prompt: continued_field.is_none() && request.get("add_generation_prompt").is_none(),
            continued_field,
            is_normalized: request.get("normalization").is_none_or(|policy| policy != "none"),
        }
    }

    /// Returns the adapter's input.
    #[must_use]
    pub fn input(&self) -> Input<'_> {
        Input {
            conversation: &self.conversation,
            add_generation_prompt: self.add_generation_prompt,
            continue_final_message: self.continued_field.as_deref(),
            template: None,
            is_normalized: self.is_normalized,
            now: LocalTime::EPOCH,
            limits: Limits::default(),
            taint: None,
        }
    }
}

/// Returns the command line's answer to a JSON request.
///
/// # Panics
/// If the request cannot be read.
#[must_use]
pub fn answer(models: &ModelTable, request: &Value) -> Value {
    let job = cli::json::request(&request.to_string(), LocalTime::EPOCH);
    cli::json::answer(job.and_then(|job| render(models, job, &Limits::default())))
}
