//! Errors of serving.

use std::net::SocketAddr;

/// Why a service could not be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The descriptors do not describe what reflection was asked to show.
    #[error("reflection could not be built")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// The server ended with an error.
    #[error("the server failed")]
    Transport(#[from] tonic::transport::Error),
    /// Others could call.
    #[error(
        "{address} can be reached from elsewhere: give --token-file, or --tls-cert and --tls-key (for control, with --tls-client-ca), \
         or, if something else protects it, --insecure"
    )]
    Unprotected {
        /// Where it would listen.
        address: SocketAddr,
    },
    /// The certificate, its key or the callers' authority make no sense.
    #[error("TLS cannot be served")]
    Tls {
        /// Why not.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The file of tokens makes no sense.
    #[error("--token-file cannot be used")]
    Tokens {
        /// Why not.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A server's task panicked.
    #[error("the server panicked")]
    Panicked(#[from] tokio::task::JoinError),
    /// Signals cannot be received.
    #[error("signals cannot be received")]
    Signal(#[source] std::io::Error),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// What was asked for.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
}
