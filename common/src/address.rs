//! Addresses to listen on, as operators write them.

use std::net::SocketAddr;

/// Parses the address of a listening flag.
///
/// # Errors
/// The text is not `IP:PORT`. The message has an address with the text's port, if it has one.
pub fn listen_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        let port = text.rsplit(':').next().and_then(|port| port.parse::<u16>().ok()).unwrap_or(50051);
        format!("expected IP:PORT, such as 127.0.0.1:{port}")
    })
}
