//! A TCP proxy whose connections can become half-open.

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What happens to connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Way {
    /// They are forwarded.
    Open,
    /// Neither side gets anything more, and no connection closes. A connection stays so.
    HalfOpen,
}

/// A proxy in front of one server.
#[derive(Debug)]
pub(in super::super) struct Proxy {
    pub(in super::super) address: String,
    way: watch::Sender<Way>,
}

impl Proxy {
    pub(in super::super) async fn start(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let way = watch::Sender::new(Way::Open);
        let changes = way.subscribe();
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.expect("a connection");
                tokio::spawn(forward(client, server.clone(), changes.clone()));
            }
        });
        Self { address, way }
    }

    pub(in super::super) fn set(&self, way: Way) {
        self.way.send_replace(way);
    }
}

async fn forward(mut client: TcpStream, server: String, mut way: watch::Receiver<Way>) {
    let Ok(mut server) = TcpStream::connect(server).await else { return };
    let is_half_open = tokio::select! {
        biased;
        changed = way.wait_for(|way| *way == Way::HalfOpen) => changed.is_ok(),
        _ = copy_bidirectional(&mut client, &mut server) => false,
    };
    if is_half_open {
        // Until the test ends.
        while way.changed().await.is_ok() {}
    }
}
