//! `check` against peers that are not gRPC servers.

use std::net::SocketAddr;
use std::time::Duration;

use tandem_common::call::Credentials;
use tandem_common::check::{Check, CheckError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// Starts a peer that sends `bytes` after the first bytes of a client, then closes the connection.
async fn peer(bytes: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 1024]).await;
            let _ = stream.write_all(bytes).await;
        }
    });
    address
}

#[tokio::test]
async fn check_reports_a_peer_that_is_not_a_grpc_server() {
    // An alert of TLS: fatal, unexpected message (RFC 8446, section 6).
    let tls_alert = b"\x15\x03\x03\x00\x02\x02\x0a".as_slice();
    let peers = [("TLS", tls_alert), ("closed at once", b""), ("HTTP/1.1", b"HTTP/1.1 400 Bad Request\r\n\r\n")];
    for (name, bytes) in peers {
        let address = peer(bytes).await;
        let check = Check {
            address: format!("http://{address}").parse().expect("an address"),
            server_name: None,
            service: String::new(),
            credentials: Credentials { ca: None, identity: None, token_file: None },
            timeout: Duration::from_secs(20),
        };
        let error = check.run().await.expect_err(name);
        assert!(matches!(error, CheckError::NotGrpc { .. } | CheckError::Connect { .. }), "{name}: {error:?}");
        let text = error.to_string();
        assert!(text.contains("may expect TLS (https://)"), "{name}: {text}");
        assert!(!text.contains(char::is_control), "{name}: {text:?}");
    }
}
