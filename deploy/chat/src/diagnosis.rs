//! Why a render-svc cannot be used, and what to do.

use std::error::Error as _;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Error, anyhow};
use tandem_common::call::ConnectionProblem;
use tandem_common::status::chain;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::{Code, Status};

use crate::args::Connection;
use crate::refusal::Refusal;
use crate::target::Target;

/// The start of an HTTP/2 connection: the preface and empty settings.
const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// The time in which a server sends its first bytes.
const PATIENCE: Duration = Duration::from_secs(2);
/// The first byte of the record with which a TLS server rejects other bytes.
const TLS_ALERT: u8 = 21;
/// The first byte of each answer of HTTP/1: `HTTP/1.1 400 Bad Request`.
const HTTP1: u8 = b'H';

/// Explains why no TCP connection was made.
pub(crate) fn of_address(target: &Target, error: io::Error) -> Error {
    let remedy = match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            "no service listens there. Start one: `cargo xtask chat --keep \"Hello\"` starts both and prints the \
             address, or see `render-svc serve --help`"
        }
        _ => "cannot connect",
    };
    Error::new(error).context(format!("{target}: {remedy}"))
}

/// Explains why no HTTP/2 connection was made.
pub(crate) fn of_connection(target: &Target, connection: &Connection, error: &tonic::transport::Error) -> Error {
    of_tls(target, connection, &chain(error)).unwrap_or_else(|| anyhow!("cannot reach {target}: {}", chain(error)))
}

/// Explains why the first call failed.
pub(crate) async fn of_call(target: &Target, connection: &Connection, address: SocketAddr, status: Status) -> Error {
    let cause = status.source().map(|source| format!(": {}", chain(source))).unwrap_or_default();
    let text = format!("{}{cause}", status.message());
    if let Some(error) = of_tls(target, connection, &text) {
        return error;
    }
    let refusal = Refusal(status);
    let has_reason = refusal.reason().is_some();
    match refusal.0.code() {
        Code::Unimplemented if is_http(&text) => no_grpc(target),
        Code::Unimplemented => anyhow!(
            "{target} is a gRPC service, but not render-svc: it does not know {}. If it is gen-svc, give the address of \
             the render-svc in front of it",
            "tandem.render.v1.RegistryService"
        ),
        _ if has_reason => Error::new(refusal).context(format!("{target} refuses the first call")),
        _ if is_http(&text) => no_grpc(target),
        // A server that requires a certificate closes the connection after its own handshake.
        _ if target.is_secured() && connection.tls_cert.is_none() => anyhow!(
            "{target} closed the connection: {text}. If it requires a certificate of the client, give --tls-cert FILE \
             --tls-key FILE"
        ),
        _ if target.is_secured() => {
            anyhow!("{target} closed the connection; it may not accept the certificate in --tls-cert: {text}")
        }
        _ => match first_byte(address).await {
            Some(TLS_ALERT) => uses_tls(target),
            Some(HTTP1) => no_grpc(target),
            _ => anyhow!("{target} cannot be used: {text}"),
        },
    }
}

/// Returns true if a status was made from an answer that is no gRPC.
fn is_http(text: &str) -> bool {
    ["compression flag", "HTTP status", "http status", "content-type"].iter().any(|word| text.contains(word))
}

fn no_grpc(target: &Target) -> Error {
    anyhow!(
        "{target} speaks HTTP, but not gRPC; is it the page of --metrics-listen? Give the address of the line \
         `render-svc listening on`"
    )
}

/// Explains an error of TLS.
fn of_tls(target: &Target, connection: &Connection, text: &str) -> Option<Error> {
    let ca = connection.tls_ca.as_ref().map_or("the system's authorities".to_owned(), |ca| ca.display().to_string());
    Some(match ConnectionProblem::find(text)? {
        ConnectionProblem::PlainServer => {
            let plain = target.uri.authority().map(ToString::to_string).unwrap_or_default();
            anyhow!("{target} does not use TLS: write --connect http://{plain}, without --tls-ca and --tls-cert")
        }
        ConnectionProblem::TlsServer => uses_tls(target),
        ConnectionProblem::UnknownIssuer => {
            anyhow!("no authority in {ca} signed the certificate of {target}: give the right one with --tls-ca FILE")
        }
        ConnectionProblem::OtherHost => anyhow!("the certificate of {target} is for another host: {text}"),
        ConnectionProblem::AuthorityCertificate => {
            anyhow!("the certificate of {target} is that of an authority (CA:TRUE); the service needs one for its host")
        }
        ConnectionProblem::OldCertificate => {
            anyhow!("the certificate of {target} or the one in {ca} is X.509 v1; make it v3")
        }
        ConnectionProblem::CertificateRequired => {
            anyhow!("{target} requires a certificate of the client: --tls-cert FILE --tls-key FILE")
        }
        ConnectionProblem::CertificateRejected => {
            anyhow!("{target} does not accept the certificate in --tls-cert: {text}")
        }
        ConnectionProblem::CertificateInvalid => anyhow!("the certificate of {target} is not accepted: {text}"),
    })
}

fn uses_tls(target: &Target) -> Error {
    let address = target.uri.authority().map_or(target.written.as_str(), |authority| authority.as_str());
    anyhow!(
        "{target} uses TLS: write https://{address}, and --tls-ca FILE unless a public authority signed its certificate"
    )
}

/// Returns the first byte of a server's answer to HTTP/2.
async fn first_byte(address: SocketAddr) -> Option<u8> {
    let mut first = [0];
    let probe = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(HTTP2).await?;
        stream.read_exact(&mut first).await
    };
    timeout(PATIENCE, probe).await.ok()?.ok()?;
    Some(first[0])
}
