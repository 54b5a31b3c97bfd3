//! The generated contracts and their descriptors, nothing else. The modules follow the proto packages.

#![allow(missing_debug_implementations, unreachable_pub, missing_docs, clippy::all)]

/// Every `.proto` of the project as an encoded `FileDescriptorSet`; what reflection serves.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// What is said to a model.
pub mod chat {
    /// Package `tandem.chat.v1`.
    pub mod v1 {
        tonic::include_proto!("tandem.chat.v1");
    }
}

/// Conversations to prompts.
pub mod render {
    /// Package `tandem.render.v1`.
    pub mod v1 {
        tonic::include_proto!("tandem.render.v1");
    }
}

/// Prompts to tokens.
pub mod generate {
    /// Package `tandem.generate.v1`.
    pub mod v1 {
        tonic::include_proto!("tandem.generate.v1");
    }
}

/// Conversations to answers.
pub mod task {
    /// Package `tandem.task.v1`.
    pub mod v1 {
        tonic::include_proto!("tandem.task.v1");
    }
}
