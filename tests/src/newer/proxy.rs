//! A proxy that turns a service's answers into those of a later version. Each message has one more field in
//! itself and in every message within it, and each stream has an event of one more kind.

use std::sync::Arc;

use h2::client::SendRequest;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{HeaderValue, Request, Response};
use prost::Message as _;
use prost::bytes::{Bytes, BytesMut};
use prost_reflect::{DescriptorPool, DynamicMessage, MethodDescriptor};
use tandem_common::pb;
use tokio::net::{TcpListener, TcpStream};

use super::contract;

/// The length of a message's head: whether it is compressed, and its length.
const HEAD: usize = 5;
const UNAVAILABLE: &str = "14";

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Forwards the connections of a socket to the service at an address. Does not end.
///
/// # Panics
/// If the descriptors of the contract are invalid.
pub async fn serve(listener: TcpListener, service: String) {
    let contract = DescriptorPool::decode(contract::evolved(pb::DESCRIPTORS).as_slice()).expect("descriptors");
    loop {
        let Ok((socket, _)) = listener.accept().await else { continue };
        let (service, contract) = (service.clone(), contract.clone());
        tokio::spawn(async move { forward_connection(socket, &service, &contract).await });
    }
}

/// Forwards the calls of one connection until it ends. Without the service, the connection is closed.
async fn forward_connection(socket: TcpStream, service: &str, contract: &DescriptorPool) -> Result<(), Failure> {
    let (requests, driver) = h2::client::handshake(TcpStream::connect(service).await?).await?;
    tokio::spawn(driver);
    let mut connection = h2::server::handshake(socket).await?;
    while let Some(call) = connection.accept().await {
        let (request, respond) = call?;
        let answers = Answers::of(contract, request.uri().path());
        tokio::spawn(forward(requests.clone(), request, respond, answers));
    }
    Ok(())
}

async fn forward(
    requests: SendRequest<Bytes>,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    answers: Answers,
) -> Result<(), Failure> {
    let (parts, body) = request.into_parts();
    let Ok(mut requests) = requests.ready().await else { return refuse(&mut respond) };
    let (response, service) = requests.send_request(Request::from_parts(parts, ()), false)?;
    let answer = async {
        let (parts, body) = response.await?.into_parts();
        let is_end = body.is_end_stream();
        let client = respond.send_response(Response::from_parts(parts, ()), is_end)?;
        if is_end { Ok(()) } else { copy(body, client, answers).await }
    };
    tokio::try_join!(copy(body, service, Answers::unchanged()), answer)?;
    Ok(())
}

/// Answers a call that the service no longer accepts.
fn refuse(respond: &mut SendResponse<Bytes>) -> Result<(), Failure> {
    let mut response = Response::new(());
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    response.headers_mut().insert("grpc-status", HeaderValue::from_static(UNAVAILABLE));
    respond.send_response(response, true)?;
    Ok(())
}

/// Copies a body and its trailers.
async fn copy(mut from: RecvStream, mut to: SendStream<Bytes>, mut answers: Answers) -> Result<(), Failure> {
    while let Some(data) = from.data().await {
        let data = data?;
        from.flow_control().release_capacity(data.len())?;
        let data = answers.changed(data)?;
        if !data.is_empty() {
            to.send_data(data, false)?;
        }
    }
    match from.trailers().await? {
        Some(trailers) => to.send_trailers(trailers)?,
        None => to.send_data(Bytes::new(), true)?,
    }
    Ok(())
}

/// The answers of one call.
struct Answers {
    /// Unset if they stay unchanged: another project defines them.
    method: Option<Arc<MethodDescriptor>>,
    /// The start of a message whose rest has not arrived.
    rest: BytesMut,
    has_event: bool,
}

impl Answers {
    fn unchanged() -> Self {
        Self { method: None, rest: BytesMut::new(), has_event: false }
    }

    fn of(contract: &DescriptorPool, path: &str) -> Self {
        let (service, name) = path.trim_start_matches('/').split_once('/').unwrap_or_default();
        let service = contract.get_service_by_name(service);
        let method = service.and_then(|service| service.methods().find(|method| method.name() == name));
        Self { method: method.map(Arc::new), ..Self::unchanged() }
    }

    /// Returns the complete messages so far, as the later version writes them.
    fn changed(&mut self, data: Bytes) -> Result<Bytes, Failure> {
        let Some(method) = self.method.clone() else { return Ok(data) };
        self.rest.extend_from_slice(&data);
        let mut result = BytesMut::new();
        while let Some(length) = self.rest.get(1..HEAD) {
            let length = HEAD + u32::from_be_bytes(length.try_into()?) as usize;
            if self.rest.len() < length {
                break;
            }
            let message = self.rest.split_to(length);
            let mut message = DynamicMessage::decode(method.output(), &message[HEAD..])?;
            contract::set_new_fields(&mut message);
            append(&mut result, &message);
            if method.is_server_streaming() && !std::mem::replace(&mut self.has_event, true) {
                append(&mut result, &event(&method));
            }
        }
        Ok(result.freeze())
    }
}

/// Returns an event that this version does not define.
fn event(method: &MethodDescriptor) -> DynamicMessage {
    let mut event = DynamicMessage::new(method.output());
    contract::set_new_fields(&mut event);
    event
}

fn append(bytes: &mut BytesMut, message: &DynamicMessage) {
    let length = u32::try_from(message.encoded_len()).expect("a message of at most 4 GiB");
    bytes.extend_from_slice(&[0]);
    bytes.extend_from_slice(&length.to_be_bytes());
    message.encode(bytes).expect("the buffer grows");
}
