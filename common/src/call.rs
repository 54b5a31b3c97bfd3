//! How a Tandem service calls another: over TLS, and with a bearer token, where that one asks for them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use sha2::{Digest as _, Sha256};
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity, Uri};

use crate::bearer::{Line, counts, lines};
use crate::reload::{Cause, Reloaded};

/// What the other service asks for.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    /// PEM: who signs its certificate.
    pub ca: Option<PathBuf>,
    /// PEM: our certificate and its key.
    pub identity: Option<[PathBuf; 2]>,
    /// The first token in it that has not expired is sent. It is read again when it changes.
    pub token_file: Option<PathBuf>,
}

/// Why credentials cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{what} cannot be used")]
pub struct CredentialsError {
    what: &'static str,
    source: Cause,
}

impl Credentials {
    /// How to connect to one of the addresses behind a name, `http` or `https`; the certificate is that name's.
    ///
    /// # Errors
    /// A file cannot be read, or makes no sense.
    pub fn endpoint(&self, name: &Uri, address: SocketAddr) -> Result<Endpoint, CredentialsError> {
        let failed = |source| CredentialsError { what: "TLS towards the other service", source };
        let is_secured = name.scheme_str() == Some("https");
        let scheme = if is_secured { "https" } else { "http" };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{address}")).map_err(|error| failed(error.into()))?;
        let endpoint = endpoint.origin(name.clone()).tcp_nodelay(true);
        if !is_secured && (self.ca.is_some() || self.identity.is_some()) {
            return Err(failed(format!("{name} is not secured: say https").into()));
        }
        if is_secured { self.tls(name, endpoint).map_err(failed) } else { Ok(endpoint) }
    }

    /// What the files for TLS hold, as a digest. None while one cannot be read.
    #[must_use]
    pub fn version(&self) -> Option<[u8; 32]> {
        let files = self.ca.iter().chain(self.identity.iter().flatten());
        let mut digest = Sha256::new();
        for file in files {
            digest.update(Sha256::digest(read(file).ok()?));
        }
        Some(digest.finalize().into())
    }

    fn tls(&self, name: &Uri, endpoint: Endpoint) -> Result<Endpoint, Cause> {
        let ca = self.ca.as_deref().ok_or("https needs to know who signs the certificate")?;
        let host = name.host().unwrap_or_default().trim_matches(['[', ']']);
        let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(ca)?)).domain_name(host);
        if let Some([certificate, key]) = &self.identity {
            tls = tls.identity(Identity::from_pem(read(certificate)?, read(key)?));
        }
        Ok(endpoint.tls_config(tls)?)
    }

    /// The token to send, if there is one.
    ///
    /// # Errors
    /// There is none in the file, or it cannot be read.
    pub fn token(&self) -> Result<Option<BearerToken>, CredentialsError> {
        let watch = |file| Reloaded::watch(vec![file], |contents| secrets(&contents[0])).map(BearerToken);
        let token = self.token_file.clone().map(watch).transpose();
        token.map_err(|source| CredentialsError { what: "the token for the other service", source })
    }
}

/// The token that calls carry.
#[derive(Debug, Clone)]
pub struct BearerToken(Arc<Reloaded<Vec<Secret>>>);

#[derive(Debug)]
struct Secret {
    header: MetadataValue<Ascii>,
    until: Option<SystemTime>,
}

impl BearerToken {
    /// Puts it where the other service looks for it.
    pub fn add_to(&self, metadata: &mut MetadataMap) {
        if let Some(secret) = self.0.get().iter().find(|secret| counts(secret.until)) {
            metadata.insert("authorization", secret.header.clone());
        }
    }
}

fn secrets(content: &[u8]) -> Result<Vec<Secret>, Cause> {
    let secret = |Line { token, until }: Line<'_>| {
        let mut header: MetadataValue<Ascii> = format!("Bearer {token}").parse()?;
        header.set_sensitive(true);
        Ok(Secret { header, until })
    };
    let secrets: Vec<_> = lines(content)?.into_iter().map(secret).collect::<Result<_, Cause>>()?;
    if secrets.is_empty() { Err("there is no token in it".into()) } else { Ok(secrets) }
}

fn read(path: &Path) -> Result<Vec<u8>, Cause> {
    std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()).into())
}
