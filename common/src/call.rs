//! Outgoing calls from one Tandem service to another: TLS and bearer tokens.

mod connection_problem;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use sha2::{Digest as _, Sha256};
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity, Uri};

use crate::bearer::{Line, is_unexpired, lines};
use crate::pem;
use crate::reload::{Cause, Reloaded, SourceFile};

pub use connection_problem::ConnectionProblem;

/// The flags for the authorities of another service.
const CA_FLAGS: &str = "--generate-ca of serve, --ca of check";

/// The credentials for another service.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    /// PEM file: the certificate authorities that may sign the other service's certificate.
    pub ca: Option<PathBuf>,
    /// PEM files: this client's certificate and its key.
    pub identity: Option<[PathBuf; 2]>,
    /// Token file. Calls carry its first unexpired token. The file is reloaded when it changes.
    pub token_file: Option<PathBuf>,
}

/// Why credentials cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use {what}")]
pub struct CredentialsError {
    what: &'static str,
    source: Cause,
}

impl Credentials {
    /// Returns the endpoint of one of a host's addresses. `name` is the `http` or `https` URI of
    /// the host; its certificate must have that host's name.
    ///
    /// # Errors
    /// Fails if a file cannot be read or is invalid, or if TLS files are given for an `http` URI.
    pub fn endpoint(&self, name: &Uri, address: SocketAddr) -> Result<Endpoint, CredentialsError> {
        let failed = |source| CredentialsError { what: "the TLS credentials for the other service", source };
        let is_secured = name.scheme_str() == Some("https");
        let scheme = if is_secured { "https" } else { "http" };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{address}")).map_err(|error| failed(error.into()))?;
        let endpoint = endpoint.origin(name.clone()).tcp_nodelay(true);
        if !is_secured && (self.ca.is_some() || self.identity.is_some()) {
            return Err(failed(format!("{name} does not use TLS: use https").into()));
        }
        if is_secured { self.tls(name, endpoint).map_err(failed) } else { Ok(endpoint) }
    }

    /// Reads and checks all files for calls to these hosts.
    ///
    /// # Errors
    /// Fails as [`endpoint`](Self::endpoint) and [`token`](Self::token) do.
    pub fn check(&self, names: &[Uri]) -> Result<(), CredentialsError> {
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        names.iter().try_for_each(|name| self.endpoint(name, nowhere).map(drop))?;
        self.token().map(drop)
    }

    /// Returns a digest of the TLS files, or None if one of them cannot be read.
    #[must_use]
    pub fn version(&self) -> Option<[u8; 32]> {
        let files = self.ca.iter().chain(self.identity.iter().flatten());
        let mut digest = Sha256::new();
        for file in files {
            digest.update(Sha256::digest(SourceFile::read_again(file).ok()?.content));
        }
        Some(digest.finalize().into())
    }

    fn tls(&self, name: &Uri, endpoint: Endpoint) -> Result<Endpoint, Cause> {
        let ca =
            self.ca.as_deref().ok_or_else(|| format!("{name} needs its certificate authorities: set {CA_FLAGS}"))?;
        let ca = authorities(ca)?;
        let host = name.host().unwrap_or_default().trim_matches(['[', ']']);
        let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca)).domain_name(host);
        if let Some([certificate, key]) = &self.identity {
            let (certificate, key) = (SourceFile::read_again(certificate)?, SourceFile::read_again(key)?);
            pem::identity(&certificate, &key)?;
            tls = tls.identity(Identity::from_pem(certificate.content, key.content));
        }
        Ok(endpoint.tls_config(tls)?)
    }

    /// Returns the bearer token for calls, or None without a token file.
    ///
    /// # Errors
    /// Fails if the file cannot be read or contains no token.
    pub fn token(&self) -> Result<Option<BearerToken>, CredentialsError> {
        let watch = |file| Reloaded::watch(vec![file], |files| secrets(&files[0])).map(BearerToken);
        let token = self.token_file.clone().map(watch).transpose();
        token.map_err(|source| CredentialsError { what: "the token file for the other service", source })
    }
}

/// Reads a PEM file of authorities that may sign another service's certificate.
///
/// # Errors
/// It cannot be read, or has no certificate, or one that cannot be used.
pub fn authorities(file: &Path) -> Result<Vec<u8>, Cause> {
    let file = SourceFile::read_again(file)?;
    pem::roots(&file)?;
    Ok(file.content)
}

/// The bearer token of outgoing calls.
#[derive(Debug, Clone)]
pub struct BearerToken(Arc<Reloaded<Vec<Secret>>>);

#[derive(Debug)]
struct Secret {
    header: MetadataValue<Ascii>,
    until: Option<SystemTime>,
}

impl BearerToken {
    /// Returns a text of the other service without the tokens, should it quote one.
    #[must_use]
    pub fn hide_in(&self, text: &str) -> String {
        let secrets = self.0.get();
        let tokens = secrets.iter().filter_map(|secret| secret.header.to_str().ok()?.split_once(' '));
        tokens.fold(text.to_owned(), |text, (_, token)| text.replace(token, "[token]"))
    }

    /// Adds the first unexpired token to a call's metadata.
    pub fn add_to(&self, metadata: &mut MetadataMap) {
        if let Some(secret) = self.0.get().iter().find(|secret| is_unexpired(secret.until)) {
            metadata.insert("authorization", secret.header.clone());
        }
    }
}

fn secrets(file: &SourceFile) -> Result<Vec<Secret>, Cause> {
    let secret = |Line { token, until, .. }: Line<'_>| {
        let mut header: MetadataValue<Ascii> = format!("Bearer {token}").parse()?;
        header.set_sensitive(true);
        Ok(Secret { header, until })
    };
    let secrets: Vec<_> = lines(file)?.into_iter().map(secret).collect::<Result<_, Cause>>()?;
    if secrets.is_empty() { Err(file.error("the file contains no token")) } else { Ok(secrets) }
}

/// Reads a service's address; `http://` may be left out.
///
/// # Errors
/// The text is not `http://HOST:PORT` or `https://HOST:PORT`.
pub fn service_uri(text: &str) -> Result<Uri, String> {
    const EXPECTED: &str = "expected http://HOST:PORT or https://HOST:PORT";
    let text = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let uri: Uri = text.parse().map_err(|error| format!("{error}; {EXPECTED}"))?;
    match (uri.scheme_str(), uri.port_u16()) {
        (Some("http" | "https"), Some(_)) => Ok(uri),
        _ => Err(EXPECTED.to_owned()),
    }
}
