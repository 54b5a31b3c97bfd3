//! The generated contracts and their descriptors. The modules follow the proto packages.

#![allow(missing_debug_implementations, unreachable_pub, missing_docs, clippy::all)]

use std::collections::HashSet;

use prost::Message as _;
use prost_types::FileDescriptorSet;

/// Every `.proto` of the project as an encoded `FileDescriptorSet`. Reflection serves it.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// Returns the names of a message's fields. Empty for an unknown message. `message` is its full name,
/// such as `tandem.chat.v1.Message`.
pub fn field_names(message: &str) -> HashSet<String> {
    let files = FileDescriptorSet::decode(DESCRIPTORS).unwrap_or_default().file;
    let (package, name) = message.rsplit_once('.').unwrap_or_default();
    let messages = files.into_iter().filter(|file| file.package() == package).flat_map(|file| file.message_type);
    let fields = messages.filter(|message| message.name() == name).flat_map(|message| message.field);
    fields.map(|field| field.name().to_owned()).collect()
}

/// Conversations and their parts.
pub mod chat {
    /// Package `tandem.chat.v1`.
    pub mod v1 {
        tonic::include_proto!("tandem.chat.v1");
    }
}

/// Rendering of conversations into prompts.
pub mod render {
    /// Package `tandem.render.v1`.
    pub mod v1 {
        tonic::include_proto!("tandem.render.v1");
    }
}

/// Generation of tokens from prompts.
pub mod generate {
    /// Package `tandem.generate.v1`.
    pub mod v1 {
        tonic::include_proto!("tandem.generate.v1");
    }
}

/// Tasks: rendering and generation in one call.
pub mod task {
    /// Package `tandem.task.v1`.
    pub mod v1 {
        tonic::include_proto!("tandem.task.v1");
    }
}

/// Returns true if a call's path is that of one of gRPC's standard services: health or reflection.
pub(crate) fn is_standard_path(path: &str) -> bool {
    path.starts_with("/grpc.")
}
