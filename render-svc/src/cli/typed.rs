//! Requests of the contract in protobuf's JSON form, as grpcurl takes them, on the command line.

use std::sync::LazyLock;

use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};
use serde_json::Value;
use tandem_common::pb;
use tandem_common::pb::render::v1::RenderRequest;

use crate::conversation::{Invalid, Object};

/// The key that only a RenderRequest has.
const CONVERSATION: &str = "conversation";

static RENDER_REQUEST: LazyLock<Option<MessageDescriptor>> = LazyLock::new(|| {
    let pool = DescriptorPool::decode(pb::DESCRIPTORS).ok()?;
    pool.get_message_by_name("tandem.render.v1.RenderRequest")
});

/// Reads a RenderRequest, or returns None for an object without a `conversation`.
///
/// # Errors
/// A key is unknown, or a value has the wrong type.
pub(super) fn request(text: &str) -> Result<Option<RenderRequest>, Invalid> {
    let object = text.contains(CONVERSATION).then(|| serde_json::from_str::<Object>(text).ok()).flatten();
    let Some(object) = object.filter(|object| object.contains_key(CONVERSATION)) else { return Ok(None) };
    let invalid = |problem: String| Invalid::new("request", problem);
    let descriptor = RENDER_REQUEST.clone().ok_or_else(|| invalid("the contract has no RenderRequest".to_owned()))?;
    let message = DynamicMessage::deserialize(descriptor, Value::Object(object))
        .map_err(|error| invalid(format!("must be a RenderRequest of the contract: {error}")))?;
    RenderRequest::decode(&*message.encode_to_vec()).map(Some).map_err(|error| invalid(error.to_string()))
}
