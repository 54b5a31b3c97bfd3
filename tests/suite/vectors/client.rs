//! A client without generated code: it reads a contract's descriptors.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, MethodDescriptor, SerializeOptions};
use serde_json::Value;
use tandem_common::status::code_name;
use tandem_tests::newer::contract;
use tandem_tests::repository;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::{KeyAndValueRef, MetadataKey, MetadataMap};
use tonic::{Code, Request, Status, Streaming};
use tonic_types::StatusExt as _;

use super::Vector;
use super::servers::Server;

/// A call's messages as proto3 JSON, its failure, and the metadata of its response.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub messages: Vec<Value>,
    pub error: Option<Value>,
    pub headers: BTreeMap<String, String>,
}

/// A client of one version of the contract.
#[derive(Debug)]
pub(super) struct Client {
    pool: DescriptorPool,
    /// True if the client sets a field that the servers do not define, in every message.
    is_newer: bool,
}

fn with_health(files: &[u8]) -> DescriptorPool {
    let mut pool = DescriptorPool::decode(files).expect("descriptors");
    pool.decode_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET).expect("descriptors of health");
    pool
}

/// Returns the names of the project's methods.
pub(super) fn methods() -> impl Iterator<Item = String> {
    let pool = DescriptorPool::decode(tandem_common::pb::DESCRIPTORS).expect("descriptors");
    let services: Vec<_> = pool.services().collect();
    services.into_iter().flat_map(|service| {
        let names: Vec<_> = service.methods().map(|m| format!("{}/{}", service.full_name(), m.name())).collect();
        names
    })
}

impl Client {
    pub(super) fn of_this_version() -> Self {
        Self { pool: with_health(tandem_common::pb::DESCRIPTORS), is_newer: false }
    }

    pub(super) fn of_the_published_contract() -> Self {
        let files = std::fs::read(repository().join("proto/baseline/tandem.binpb")).expect("the baseline");
        Self { pool: with_health(&files), is_newer: false }
    }

    pub(super) fn of_a_newer_version() -> Self {
        Self { pool: with_health(&contract::evolved(tandem_common::pb::DESCRIPTORS)), is_newer: true }
    }

    fn method(&self, name: &str) -> Option<MethodDescriptor> {
        let (service, method) = name.split_once('/')?;
        self.pool.get_service_by_name(service)?.methods().find(|found| found.name() == method)
    }

    /// Returns the type of a method's messages.
    pub(super) fn output(&self, method: &str) -> MessageDescriptor {
        self.method(method).expect("a method").output()
    }

    /// Returns true if the contract has the method, and every field of the request and of the expected answer.
    pub(super) fn defines(&self, vector: &Vector) -> bool {
        let Some(method) = self.method(&vector.method) else { return false };
        let is_message = |expected: &Value| DynamicMessage::deserialize(method.output(), expected.clone()).is_ok();
        self.of_json(method.input(), vector).is_some() && vector.expect.messages().all(is_message)
    }

    /// Returns true if the request's JSON and its bytes are the same message.
    pub(super) fn reads_json_and_bytes_alike(&self, vector: &Vector) -> bool {
        let input = self.method(&vector.method).expect("a method").input();
        let own = self.own_request(vector);
        self.of_json(input, vector).is_some_and(|message| json(&message) == json(&own))
    }

    fn of_json(&self, input: MessageDescriptor, vector: &Vector) -> Option<DynamicMessage> {
        DynamicMessage::deserialize(input, vector.request.clone()).ok()
    }

    /// Returns the vector's request, from its JSON unless only its bytes have it.
    pub(super) fn request(&self, vector: &Vector) -> DynamicMessage {
        if vector.binary_only {
            return self.own_request(vector);
        }
        let input = self.method(&vector.method).expect("a method").input();
        self.of_json(input, vector).unwrap_or_else(|| panic!("{}: request", vector.name))
    }

    /// Returns the request of the vector's bytes, or of its JSON if it has no bytes.
    pub(super) fn own_request(&self, vector: &Vector) -> DynamicMessage {
        match &vector.request_binary {
            Some(bytes) => self.request_of(vector, bytes),
            None => self.request(vector),
        }
    }

    /// Returns the request of other bytes, in base64.
    pub(super) fn request_of(&self, vector: &Vector, bytes: &str) -> DynamicMessage {
        let bytes = BASE64_STANDARD.decode(bytes).expect("base64");
        let input = self.method(&vector.method).expect("a method").input();
        DynamicMessage::decode(input, &*bytes).expect("a message")
    }

    /// Returns an answer's bytes, in base64, as proto3 JSON.
    pub(super) fn answer_of(&self, method: &str, bytes: &str) -> Value {
        let bytes = BASE64_STANDARD.decode(bytes).expect("base64");
        let output = self.method(method).expect("a method").output();
        json(&DynamicMessage::decode(output, &*bytes).expect("a message"))
    }

    /// Calls the vector's method, and reads the answer to its end or to the cancellation.
    pub(super) async fn call(&self, server: &Server, vector: &Vector) -> Answer {
        let mut answer = Answer::default();
        let limit = Duration::from_millis(vector.deadline_ms.unwrap_or(60_000));
        let read = tokio::time::timeout(limit, self.read(server, vector, &mut answer)).await;
        let read = read.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer within the deadline")));
        if let Err(status) = read {
            answer.headers.extend(texts(status.metadata()));
            answer.error = Some(error(&status));
        }
        answer
    }

    async fn read(&self, server: &Server, vector: &Vector, answer: &mut Answer) -> Result<(), Status> {
        let is_late = vector.signal_after == Some(0);
        let mut stream =
            if is_late { self.open_late(server, vector).await? } else { self.open(server, vector).await? };
        answer.headers.extend(texts(stream.headers.as_ref().expect("headers")));
        let mut count = 0;
        while let Some(message) = stream.events.message().await? {
            let message = json(&message);
            let is_progress = message.get("progress").is_some();
            answer.messages.push(message);
            if is_progress && !vector.expect.keeps_progress() {
                continue;
            }
            count += 1;
            if vector.cancel_after == Some(count) {
                return Err(Status::cancelled("by the client"));
            }
            if vector.signal_after == Some(count) {
                server.terminate(self).await;
            }
        }
        let trailers = stream.events.trailers().await?;
        answer.headers.extend(trailers.iter().flat_map(texts));
        Ok(())
    }

    /// Starts a call. A call with one response is a stream of one message.
    pub(super) async fn open(&self, server: &Server, vector: &Vector) -> Result<Call, Status> {
        let request = self.prepared(vector).map(tokio_stream::once);
        self.streamed(server, vector, request).await
    }

    /// Starts a call, lets the server drain, and then sends the call's message.
    async fn open_late(&self, server: &Server, vector: &Vector) -> Result<Call, Status> {
        let (send, messages) = mpsc::channel(1);
        let mut message = None;
        let request = self.prepared(vector).map(|given| {
            message = Some(given);
            ReceiverStream::new(messages)
        });
        let mut call = pin!(self.streamed(server, vector, request));
        let drained = async {
            server.is_serving(self).await; // on the same connection: the server has the call before its answer
            server.terminate(self).await;
        };
        tokio::select! {
            biased;
            _ = &mut call => panic!("{}: it is answered before its message", vector.name),
            () = drained => {}
        }
        send.send(message.expect("a message")).await.expect("the call is open");
        drop(send);
        call.await
    }

    /// Returns the request with its metadata and deadline.
    fn prepared(&self, vector: &Vector) -> Request<DynamicMessage> {
        let mut message = self.request(vector);
        if self.is_newer {
            contract::set_new_fields(&mut message);
        }
        let mut request = Request::new(message);
        for (key, value) in &vector.metadata {
            let key: MetadataKey<_> = key.parse().expect("a key");
            request.metadata_mut().insert(key, value.parse().expect("a value"));
        }
        if let Some(limit) = vector.deadline_ms {
            request.set_timeout(Duration::from_millis(limit));
        }
        request
    }

    async fn streamed(
        &self,
        server: &Server,
        vector: &Vector,
        request: Request<impl Stream<Item = DynamicMessage> + Send + 'static>,
    ) -> Result<Call, Status> {
        let method = self.method(&vector.method).unwrap_or_else(|| panic!("{}: no method", vector.name));
        let mut client = tonic::client::Grpc::new(server.channel(&vector.method)).max_decoding_message_size(64 << 20);
        if vector.compression.is_some() {
            client = client.send_compressed(CompressionEncoding::Gzip);
        }
        client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let path = format!("/{}", vector.method).parse().expect("a path");
        let (metadata, events, _) =
            client.streaming(request, path, Dynamic { output: method.output() }).await?.into_parts();
        Ok(Call { headers: Some(metadata), events })
    }
}

/// A started call.
#[derive(Debug)]
pub(super) struct Call {
    headers: Option<MetadataMap>,
    events: Streaming<DynamicMessage>,
}

impl Call {
    /// Waits for the first event that is not a sign of life.
    pub(super) async fn wait_for_event(&mut self) {
        while let Some(event) = self.events.message().await.expect("no error") {
            if json(&event).get("progress").is_none() {
                return;
            }
        }
        panic!("the stream has ended");
    }

    /// Waits for the first event of a request in the queue: a sign of life.
    pub(super) async fn wait_for_progress(&mut self) {
        let event = self.events.message().await.expect("no error").expect("an event");
        assert!(json(&event).get("progress").is_some(), "{event}");
    }
}

fn json(message: &DynamicMessage) -> Value {
    let options = SerializeOptions::new().skip_default_fields(true).stringify_64_bit_integers(true);
    message.serialize_with_options(serde_json::value::Serializer, &options).expect("JSON")
}

fn texts(metadata: &MetadataMap) -> BTreeMap<String, String> {
    let text = |entry| match entry {
        KeyAndValueRef::Ascii(key, value) => Some((key.to_string(), value.to_str().ok()?.to_owned())),
        KeyAndValueRef::Binary(..) => None,
    };
    metadata.iter().filter_map(text).collect()
}

/// Returns the failure as the vectors state it.
fn error(status: &Status) -> Value {
    let details = status.get_error_details();
    // tonic's own deadline has the code CANCELLED.
    let is_late = status.code() == Code::Cancelled && status.message() == "Timeout expired";
    let code = if is_late { Code::DeadlineExceeded } else { status.code() };
    let mut error = serde_json::json!({
        "code": code_name(code),
        "message": status.message(),
        "reason": details.error_info().map_or("", |info| &info.reason),
        "retry": details.retry_info().is_some_and(|retry| retry.retry_delay.is_some_and(|delay| !delay.is_zero())),
    });
    if let Some(violation) = details.bad_request().and_then(|invalid| invalid.field_violations.first()) {
        error["field"] = violation.field.clone().into();
    }
    if let Some(resource) = details.resource_info() {
        error["resource"] = serde_json::json!({"type": resource.resource_type, "name": resource.resource_name});
    }
    error
}

/// Encodes any message, and decodes messages of one type.
#[derive(Debug, Clone)]
struct Dynamic {
    output: MessageDescriptor,
}

impl Codec for Dynamic {
    type Encode = DynamicMessage;
    type Decode = DynamicMessage;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        self.clone()
    }

    fn decoder(&mut self) -> Self {
        self.clone()
    }
}

impl Encoder for Dynamic {
    type Item = DynamicMessage;
    type Error = Status;

    fn encode(&mut self, item: DynamicMessage, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        item.encode(buffer).map_err(|error| Status::internal(error.to_string()))
    }
}

impl Decoder for Dynamic {
    type Item = DynamicMessage;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<DynamicMessage>, Status> {
        let message = DynamicMessage::decode(self.output.clone(), buffer);
        message.map(Some).map_err(|error| Status::internal(error.to_string()))
    }
}
