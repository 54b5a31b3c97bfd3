//! Accepted connections: their limit, TLS, and the timeout for their first bytes.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use opentelemetry::KeyValue;
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::Sleep;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

use super::caller::Peer;
use super::handshakes;
use super::places::{Place, Places};
use super::tls::Tls;
use super::unread_answers::Watch;
use crate::admission::Permits;
use crate::telemetry::meter;

/// The time for the TLS handshake, and again for the first bytes of HTTP/2.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The first bytes of HTTP/2: the preface and the header of the first frame.
const PREFACE_BYTES: usize = 24 + 9;
/// The idle time after which the operating system asks the client whether the connection exists.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// The delay after the operating system has run out of sockets.
const SHORTAGE_DELAY: Duration = Duration::from_millis(100);

/// Registers the gauge of open connections, for the port of this service.
pub(super) fn observe(service: &'static str, permits: &Arc<Permits>) {
    let permits = Arc::downgrade(permits);
    meter()
        .u64_observable_gauge("tandem.server.connections")
        .with_unit("{connection}")
        .with_description("Open connections, by the first service of their port.")
        .with_callback(move |observer| {
            if let Some(permits) = permits.upgrade() {
                observer.observe(permits.held() as u64, &[KeyValue::new("rpc.service", service)]);
            }
        })
        .build();
}

/// Accepts connections until the stream is dropped, which closes the socket. A connection without a
/// place for its address is closed at once, and one whose client does not read an answer after
/// `patience`.
pub(super) fn incoming(
    listener: TcpListener,
    places: Places,
    tls: Option<Tls>,
    patience: Duration,
) -> ReceiverStream<io::Result<Connection>> {
    let (sender, receiver): (_, Receiver<_>) = mpsc::channel(16);
    tokio::spawn(accept(listener, places, tls, patience, sender));
    ReceiverStream::new(receiver)
}

async fn accept(
    listener: TcpListener,
    places: Places,
    tls: Option<Tls>,
    patience: Duration,
    sender: Sender<io::Result<Connection>>,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = sender.closed() => return,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                if is_shortage(&error) {
                    tokio::time::sleep(SHORTAGE_DELAY).await;
                }
                continue;
            }
        };
        let Some(place) = places.acquire(address.ip()) else {
            tracing::debug!("connection limit reached; connection closed");
            continue;
        };
        let (sender, tls) = (sender.clone(), tls.clone());
        tokio::spawn(async move {
            if let Ok(Ok(connection)) =
                tokio::time::timeout(HANDSHAKE_TIMEOUT, connect(stream, tls, patience, place)).await
            {
                let _ = sender.send(Ok(connection)).await;
            }
        });
    }
}

/// Returns true if the operating system has no resources for any connection: ENOMEM, ENFILE,
/// EMFILE, ENOBUFS.
fn is_shortage(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(12 | 23 | 24 | 105))
}

async fn connect(stream: TcpStream, tls: Option<Tls>, patience: Duration, place: Place) -> io::Result<Connection> {
    stream.set_nodelay(true)?;
    // Without it a client that vanished over HTTP/1.1, which has no pings, would keep its permit.
    sockopt::set_socket_keepalive(&stream, true)?;
    sockopt::set_tcp_keepidle(&stream, KEEPALIVE_IDLE)?;
    let address = stream.peer_addr().ok();
    let mut certificate = None;
    let stream: Box<dyn Stream> = match tls {
        None => Box::new(stream),
        Some(tls) => {
            let accepted = tls.acceptor().accept(stream).await;
            let accepted = accepted.inspect_err(|error| handshakes::failed(address, error))?;
            let certificates = accepted.get_ref().1.peer_certificates().unwrap_or_default();
            certificate = certificates.first().map(|certificate| tls.client(certificate));
            Box::new(accepted)
        }
    };
    let timer = Some(Box::pin(tokio::time::sleep(HANDSHAKE_TIMEOUT)));
    let peer = Peer::new(address, certificate);
    let unread = Watch::new(Arc::clone(&peer.unread), patience);
    Ok(Connection { stream, peer, received: 0, timer, unread, place })
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {
    /// Returns true if the client has closed the connection, whether its bytes were read or not.
    fn is_closed(&self) -> bool;
}

impl Stream for TcpStream {
    fn is_closed(&self) -> bool {
        let ready = pin!(self.ready(Interest::READABLE)).poll(&mut Context::from_waker(Waker::noop()));
        matches!(ready, Poll::Ready(Ok(ready)) if ready.is_read_closed())
    }
}

impl Stream for TlsStream<TcpStream> {
    fn is_closed(&self) -> bool {
        self.get_ref().0.is_closed()
    }
}

/// A client's connection.
pub(super) struct Connection {
    stream: Box<dyn Stream>,
    peer: Peer,
    /// The bytes read while the timer runs.
    received: usize,
    /// Runs until [`PREFACE_BYTES`] have arrived.
    timer: Option<Pin<Box<Sleep>>>,
    unread: Watch,
    place: Place,
}

impl Connection {
    /// Fails if the client does not read, or is gone. Every read and write calls this.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        self.unread.poll(context, || self.stream.is_closed())
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        let before = buffer.filled().len();
        let polled = pin!(&mut self.stream).poll_read(context, buffer);
        self.place.read(&buffer.filled()[before..])?;
        let Some(timer) = &mut self.timer else { return polled };
        if polled.is_pending() && timer.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        self.received += buffer.filled().len() - before;
        if self.received >= PREFACE_BYTES {
            self.timer = None;
        }
        polled
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check(context)?;
        let polled = pin!(&mut self.stream).poll_write(context, bytes);
        self.unread.wrote(&polled);
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(context)?;
        let polled = pin!(&mut self.stream).poll_flush(context);
        self.unread.flushed(&polled);
        polled
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        pin!(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        let polled = pin!(&mut self.stream).poll_write_vectored(context, bytes);
        self.unread.wrote(&polled);
        polled
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
