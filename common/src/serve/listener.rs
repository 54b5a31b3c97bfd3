//! Listening sockets.

use std::net::SocketAddr;

use tokio::net::TcpListener;

use super::error::ServeError;
use super::security::Security;

/// A listening socket, and TLS and tokens for its connections.
#[derive(Debug)]
pub struct SecureListener {
    /// The socket.
    pub listener: TcpListener,
    /// TLS and tokens.
    pub security: Security,
}

/// Opens a listening socket. Port 0 selects any free port.
///
/// # Errors
/// Fails if the address is not available, or if it is not a loopback address and nothing protects
/// it.
pub async fn listen(address: SocketAddr, security: &Security) -> Result<TcpListener, ServeError> {
    security.check(address)?;
    TcpListener::bind(address).await.map_err(|source| ServeError::Listen { address, source })
}
