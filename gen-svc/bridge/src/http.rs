//! Calls of an engine over HTTP, with JSON bodies.

use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, Method, RequestBuilder, Response, StatusCode};
use serde_json::Value;
use tandem_common::call::BearerToken;
use tandem_core::error::LoadError;
use tokio_rustls::rustls;
use tonic::metadata::MetadataMap;

use crate::call::{CallError, last_cause, shortened};
use crate::sse::Events;
use crate::target::Target;

/// How long a connection may take to open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long an answer without a generation may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the answer about the engine's health may take. An engine whose process is stopped does not answer.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(1);
/// The most bytes of an answer without a generation.
const MAX_ANSWER_BYTES: usize = 8 << 20;
/// The most bytes of an error.
const MAX_ERROR_BYTES: usize = 64 << 10;

/// The HTTP interface of an engine.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    client: Client,
    /// Without a slash at its end.
    url: String,
    token: Option<BearerToken>,
}

impl Http {
    /// Creates the client. It does not connect.
    ///
    /// # Errors
    /// The file of authorities or of the token cannot be read.
    pub(crate) fn new(target: &Target) -> Result<Self, LoadError> {
        // Fails if there is one already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // Each call has a new connection: engines close idle ones without a word, and a call on one that closes fails.
        let mut builder =
            Client::builder().connect_timeout(CONNECT_TIMEOUT).no_proxy().tcp_nodelay(true).redirect(Policy::none());
        builder = builder.pool_max_idle_per_host(0);
        if let Some(pem) = target.authorities()? {
            let roots = Certificate::from_pem_bundle(&pem).map_err(|error| target.unusable(last_cause(&error)))?;
            builder = builder.tls_certs_only(roots);
        } else if target.url.starts_with("http://") {
            // Otherwise the client fails where the system has no authorities, as in the image.
            builder = builder.tls_certs_only([]);
        }
        let client = builder.build().map_err(|error| target.unusable(last_cause(&error)))?;
        Ok(Self { client, url: target.url.trim_end_matches('/').to_owned(), token: target.token()? })
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.client.request(method, format!("{}{path}", self.url));
        let mut metadata = MetadataMap::new();
        self.token.iter().for_each(|token| token.add_to(&mut metadata));
        request.headers(metadata.into_headers())
    }

    /// Returns the status of the engine's health, within a second.
    ///
    /// # Errors
    /// [`CallError::Lost`].
    pub(crate) async fn health(&self, path: &str) -> Result<StatusCode, CallError> {
        let sent = self.request(Method::GET, path).timeout(HEALTH_TIMEOUT).send().await;
        sent.map(|response| response.status()).map_err(|error| CallError::lost(&error))
    }

    /// Returns the JSON answer to a request with a body, or without one to a GET.
    ///
    /// # Errors
    /// The engine does not answer in time, with an error, or with no JSON.
    pub(crate) async fn json(&self, path: &str, body: Option<&Value>) -> Result<Value, CallError> {
        parse(path, &read(self.send(path, body, Some(ANSWER_TIMEOUT)).await?, MAX_ANSWER_BYTES).await?)
    }

    /// As [`json`](Self::json), for an answer of at most `most` bytes that takes as long as a generation.
    pub(crate) async fn generation(&self, path: &str, body: &Value, most: usize) -> Result<Value, CallError> {
        parse(path, &read(self.send(path, Some(body), None).await?, most).await?)
    }

    /// Returns the text of a GET.
    ///
    /// # Errors
    /// As [`json`](Self::json).
    pub(crate) async fn text(&self, path: &str) -> Result<String, CallError> {
        let bytes = read(self.send(path, None, Some(ANSWER_TIMEOUT)).await?, MAX_ANSWER_BYTES).await?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Returns the events of a streamed answer, each of at most `most` bytes.
    ///
    /// # Errors
    /// The engine does not answer, or with an error.
    pub(crate) async fn events(&self, path: &str, body: &Value, most: usize) -> Result<Events, CallError> {
        Ok(Events::new(self.send(path, Some(body), None).await?, most))
    }

    async fn send(&self, path: &str, body: Option<&Value>, most: Option<Duration>) -> Result<Response, CallError> {
        let mut request = self.request(if body.is_some() { Method::POST } else { Method::GET }, path);
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        if let Some(most) = most {
            request = request.timeout(most);
        }
        let response = request.send().await.map_err(|error| CallError::lost(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let mut message = message(&read(response, MAX_ERROR_BYTES).await.unwrap_or_default());
        if let Some(token) = &self.token {
            message = token.hide_in(&message);
        }
        Err(refusal(status, &message))
    }
}

/// Returns the error of an answer with this status. Only a caller sees the engine's message: it may quote a request,
/// and no log may.
fn refusal(status: StatusCode, message: &str) -> CallError {
    match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => CallError::Busy,
        StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY | StatusCode::PAYLOAD_TOO_LARGE => {
            CallError::Rejected(shortened(message))
        }
        status if status.is_client_error() => CallError::Denied(status.as_u16()),
        status => CallError::Lost(format!("it answers {status}")),
    }
}

/// Returns the message in an engine's error.
fn message(body: &[u8]) -> String {
    let json: Value = serde_json::from_slice(body).unwrap_or_default();
    let error = json.get("error").unwrap_or(&json);
    let message = error.as_str().or_else(|| error.get("message").or_else(|| error.get("detail"))?.as_str());
    message.map_or_else(|| String::from_utf8_lossy(body).into_owned(), str::to_owned)
}

fn parse(path: &str, bytes: &[u8]) -> Result<Value, CallError> {
    serde_json::from_slice(bytes).map_err(|error| CallError::Contradiction(format!("{path}: no JSON: {error}")))
}

async fn read(mut response: Response, most: usize) -> Result<Vec<u8>, CallError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| CallError::lost(&error))? {
        if bytes.len() + chunk.len() > most {
            return Err(CallError::Contradiction(format!("an answer has more than {most} bytes")));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}
