//! Connections, from the socket to the server: how many there may be, TLS, and how long a caller may say nothing.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::{Connected, TcpConnectInfo};

use super::tls::Tls;

/// How long a new connection may take to secure itself, and to say how it begins.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes with which HTTP/2 begins: the preface, and the header of a first frame.
const BEGINNING: usize = 24 + 9;
/// How long to wait when the system has no sockets left.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections until the stream is dropped; the socket is closed then. One more than `most` is closed at once.
pub(super) fn incoming(
    listener: TcpListener,
    most: Arc<Semaphore>,
    tls: Option<Tls>,
) -> ReceiverStream<io::Result<Connection>> {
    let (sender, receiver): (_, Receiver<_>) = mpsc::channel(16);
    tokio::spawn(accept(listener, most, tls, sender));
    ReceiverStream::new(receiver)
}

async fn accept(listener: TcpListener, most: Arc<Semaphore>, tls: Option<Tls>, sender: Sender<io::Result<Connection>>) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = sender.closed() => return,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                if is_shortage(&error) {
                    tokio::time::sleep(PAUSE).await;
                }
                continue;
            }
        };
        let Ok(place) = Arc::clone(&most).try_acquire_owned() else {
            tracing::debug!("one connection too many");
            continue;
        };
        let (sender, tls) = (sender.clone(), tls.clone());
        tokio::spawn(async move {
            if let Ok(Ok(connection)) = tokio::time::timeout(PATIENCE, connect(stream, tls, place)).await {
                let _ = sender.send(Ok(connection)).await;
            }
        });
    }
}

/// Whether the system has no room for another connection, whichever it is: ENOMEM, ENFILE, EMFILE, ENOBUFS.
fn is_shortage(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(12 | 23 | 24 | 105))
}

async fn connect(stream: TcpStream, tls: Option<Tls>, place: OwnedSemaphorePermit) -> io::Result<Connection> {
    stream.set_nodelay(true)?;
    let info = stream.connect_info();
    let stream: Box<dyn Stream> = match tls {
        None => Box::new(stream),
        Some(tls) => Box::new(tls.acceptor().accept(stream).await.inspect_err(|error| {
            tracing::debug!(%error, "a connection was not secured");
        })?),
    };
    Ok(Connection { stream, info, said: 0, silence: Some(Box::pin(tokio::time::sleep(PATIENCE))), _place: place })
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A caller's connection.
pub(super) struct Connection {
    stream: Box<dyn Stream>,
    info: TcpConnectInfo,
    /// Bytes that were read, until they are enough to begin.
    said: usize,
    /// Until the caller has begun.
    silence: Option<Pin<Box<Sleep>>>,
    _place: OwnedSemaphorePermit,
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.info.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = pin!(&mut self.stream).poll_read(context, buffer);
        let Some(silence) = &mut self.silence else { return polled };
        if polled.is_pending() && silence.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        self.said += buffer.filled().len() - before;
        if self.said >= BEGINNING {
            self.silence = None;
        }
        polled
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        pin!(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        pin!(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        pin!(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        pin!(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
