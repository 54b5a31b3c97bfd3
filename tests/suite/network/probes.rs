//! The probes of orchestrators: their form, and idle connections.

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use tandem_common::serve::ServeArgs;
use tandem_tests::{ModelFolder, Running, render_service_with_args};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

async fn serve() -> (Running, SocketAddr) {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let model = ModelFolder::new("tiny").with_template("{{ messages[0].content }}").with_tokenizer();
    let args = ServeArgs { health_listen: Some(free), ..ServeArgs::default() };
    let service = render_service_with_args(&[model.path()], args).await;
    let mut health = HealthClient::new(service.channel().await);
    // Answered once the probes listen too.
    health.check(HealthCheckRequest::default()).await.expect("it is answered");
    (service, free)
}

/// Returns the response in lower case, to the end of the connection.
async fn probe(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    stream.write_all(format!("{request} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.expect("it is sent");
    let mut response = String::new();
    stream.read_to_string(&mut response).await.expect("it answers");
    response.to_lowercase()
}

#[tokio::test(flavor = "multi_thread")]
async fn probe_is_plain_text_on_a_connection_of_its_own() {
    let (_service, address) = serve().await;
    let live = probe(address, "GET /livez").await;
    assert!(live.starts_with("http/1.1 200") && live.ends_with("\r\n\r\nok\n"), "{live}");
    assert!(live.contains("content-type: text/plain; charset=utf-8\r\n"), "{live}");
    assert!(live.contains("connection: close\r\n"), "{live}");
    let head = probe(address, "HEAD /livez").await;
    assert!(head.starts_with("http/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
    let refused = probe(address, "POST /readyz").await;
    assert!(refused.starts_with("http/1.1 405") && refused.contains("allow: get, head\r\n"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_are_answered_beside_idle_connections() {
    let (_service, address) = serve().await;
    let mut idle = Vec::new();
    for number in 0..300 {
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        let sent: &[u8] = [b"".as_slice(), b"GET", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"][number % 3];
        let _ = stream.write_all(sent).await;
        idle.push(stream);
    }
    let start = Instant::now();
    let live = probe(address, "GET /livez").await;
    assert!(live.starts_with("http/1.1 200"), "{live}");
    for mut stream in idle {
        // Fails if the service reset the connection.
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
    assert!(start.elapsed() < Duration::from_secs(8), "a connection ends after two seconds: {:?}", start.elapsed());
}
