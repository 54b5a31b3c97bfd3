//! Errors of serving.

use std::net::SocketAddr;

/// Why a server could not start or has failed.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Reflection's descriptors are invalid.
    #[error("cannot build reflection")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// The server ended with an error.
    #[error("server failed")]
    Transport(#[from] tonic::transport::Error),
    /// Other machines can connect, and nothing protects the address.
    #[error(
        "{address} is reachable from other machines and not protected: set --token-file, or --tls-cert and --tls-key \
         (for the admin API with --tls-client-ca), or --insecure if another component protects it"
    )]
    Unprotected {
        /// The address to listen on.
        address: SocketAddr,
    },
    /// The certificate, its key or the client authorities are invalid.
    #[error("cannot set up TLS")]
    Tls {
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The token file is invalid.
    #[error("cannot use --token-file")]
    Tokens {
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The task of a server panicked.
    #[error("server panicked")]
    Panicked(#[from] tokio::task::JoinError),
    /// The signal handlers cannot be installed.
    #[error("cannot install signal handlers")]
    Signal(#[source] std::io::Error),
    /// The address is not available.
    #[error("cannot listen on {address} (--listen, --metrics-listen, --health-listen or --control-listen)")]
    Listen {
        /// The address to listen on.
        address: SocketAddr,
        /// The cause.
        source: std::io::Error,
    },
}
