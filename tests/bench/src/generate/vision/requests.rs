//! Requests of the measurements with images.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;
use tandem_common::pb::generate::v1::generate_request::Input;
use tandem_common::pb::generate::v1::generate_service_client::GenerateServiceClient;
use tandem_common::pb::generate::v1::{GenerateRequest, ReturnOptions, Sampling, Stop};
use tonic::transport::Channel;

pub(super) type Client = GenerateServiceClient<Channel>;

const QUESTION: &str = "What is in the picture?";

/// Returns a request for a token after a question about an image.
pub(super) fn request(image: &[u8], salt: &str) -> GenerateRequest {
    let image = json!({"type": "image", "base64": BASE64_STANDARD.encode(image)});
    let messages = json!([{"role": "user", "content": [image, {"type": "text", "text": QUESTION}]}]);
    limited(Input::HfMessagesJson(messages.to_string()), 1, salt)
}

/// Returns a request for this number of tokens.
pub(super) fn limited(input: Input, tokens: u32, salt: &str) -> GenerateRequest {
    GenerateRequest {
        input: Some(input),
        sampling: Some(Sampling { temperature: Some(0.0), ..Sampling::default() }),
        stop: Some(Stop { max_new_tokens: Some(tokens), ignore_eos: true, ..Stop::default() }),
        return_options: Some(ReturnOptions { token_ids: true, ..ReturnOptions::default() }),
        cache_salt: salt.to_owned(),
        ..GenerateRequest::default()
    }
}
