//! Requests of the contract in protobuf's JSON form, as grpcurl takes them, on the command line.

use std::sync::LazyLock;

use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};
use serde_json::Value;
use tandem_common::pb;
use tandem_common::pb::render::v1::RenderRequest;

use crate::conversation::{Invalid, Object};

static RENDER_REQUEST: LazyLock<Option<MessageDescriptor>> = LazyLock::new(|| {
    let pool = DescriptorPool::decode(pb::DESCRIPTORS).ok()?;
    pool.get_message_by_name("tandem.render.v1.RenderRequest")
});

/// Returns true if the object is a RenderRequest: it has the key of its conversation.
pub(super) fn is_typed(request: &Object) -> bool {
    request.contains_key("conversation")
}

/// Reads a RenderRequest.
///
/// # Errors
/// A key is unknown, or a value has the wrong type.
pub(super) fn request(request: Object) -> Result<RenderRequest, Invalid> {
    let invalid = |problem: String| Invalid::new("request", problem);
    let descriptor = RENDER_REQUEST.clone().ok_or_else(|| invalid("the contract has no RenderRequest".to_owned()))?;
    let message = DynamicMessage::deserialize(descriptor, Value::Object(request));
    let message = message.map_err(|error| invalid(format!("must be a RenderRequest of the contract: {error}")))?;
    RenderRequest::decode(&*message.encode_to_vec()).map_err(|error| invalid(error.to_string()))
}
