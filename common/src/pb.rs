//! The generated contracts and their descriptors. The modules follow the proto packages.

#![allow(missing_debug_implementations, unreachable_pub, missing_docs, clippy::all)]

/// Every `.proto` of the project as an encoded `FileDescriptorSet`. Reflection serves it.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

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
