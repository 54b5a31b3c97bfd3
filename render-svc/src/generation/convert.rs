//! From the types of tasks to the generation contract. Types are destructured, so that a new field does
//! not compile until it is handled here.

use tandem_common::pb::generate::v1::generate_request::Input;
use tandem_common::pb::generate::v1::{GenerateRequest, HfTemplate, Media, Resume, TokenIds};

use crate::task::request::{GenerationOptions, GenerationRequest, Prompt};

/// Returns the message that starts the output, or resumes it after the token ids `generated`.
/// `model_id` is the model's id at the replica, if the replica names its model.
pub(super) fn request(request: &GenerationRequest, generated: &[u32], model_id: Option<&str>) -> GenerateRequest {
    let GenerationRequest { model, prompt, options, deadline: _ } = request;
    let GenerationOptions { sampling, stop, return_options, output_spec, grammar, priority, cache_salt } =
        options.clone();
    let (input, hf_template, media) = input(prompt, generated);
    let token_ids = if hf_template.is_some() { generated.to_vec() } else { Vec::new() };
    let resume = Resume { generated_tokens: generated.len() as u32, output_index: 0, token_ids };
    GenerateRequest {
        model: model_id.or(model.own.first().map(String::as_str)).unwrap_or_default().to_owned(),
        input: Some(input),
        sampling: Some(sampling),
        stop,
        output_spec: Some(output_spec),
        return_options: Some(return_options),
        expected_tokenizer_sha256: Some(model.tokenizer_sha256.clone()),
        priority,
        cache_salt,
        grammar,
        resume: (!generated.is_empty()).then_some(resume),
        hf_template,
        media,
    }
}

/// Returns the input, and what belongs to it.
fn input(prompt: &Prompt, generated: &[u32]) -> (Input, Option<HfTemplate>, Vec<Media>) {
    match prompt {
        Prompt::TokenIds { ids, media } => {
            (Input::TokenIds(TokenIds { ids: [ids, generated].concat() }), None, media.clone())
        }
        Prompt::HfMessages { messages_json, template, prefix: _ } => {
            (Input::HfMessagesJson(messages_json.clone()), Some(template.clone()), Vec::new())
        }
    }
}
