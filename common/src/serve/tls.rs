//! TLS, with certificates that are reloaded when they change.

use std::path::PathBuf;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use webpki::EndEntityCert;

use crate::pem;
use crate::reload::{Cause, Reloaded, SourceFile};

/// The TLS configuration of new connections.
#[derive(Clone)]
pub(super) struct Tls {
    config: Arc<Reloaded<ServerConfig>>,
    /// The application protocols offered (ALPN).
    protocols: &'static [&'static [u8]],
    /// The names of certificates whose clients may call on behalf of others.
    delegates: Arc<[String]>,
}

impl Tls {
    /// Reads PEM files: the certificate with its chain, its key and, to require client
    /// certificates, the authorities that sign them.
    pub(super) fn watch(certificate: PathBuf, key: PathBuf, client_ca: Option<PathBuf>) -> Result<Self, Cause> {
        let files = [certificate, key].into_iter().chain(client_ca).collect();
        let config = Reloaded::watch(files, |files| config(&files[0], &files[1], files.get(2)))?;
        Ok(Self { config, protocols: &[b"h2"], delegates: Arc::default() })
    }

    /// Lets clients whose certificate has one of these names call on behalf of others.
    pub(super) fn with_delegates(self, names: &[String]) -> Self {
        Self { delegates: names.into(), ..self }
    }

    /// Returns a client's certificate, which the handshake has verified.
    pub(super) fn client(&self, certificate: &CertificateDer<'_>) -> ClientCertificate {
        let digest = Sha256::digest(certificate);
        let digest = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect::<String>().into();
        ClientCertificate { digest, is_delegate: self.is_delegate(certificate) }
    }

    fn is_delegate(&self, certificate: &CertificateDer<'_>) -> bool {
        let Ok(certificate) = EndEntityCert::try_from(certificate) else { return false };
        let (uris, names): (Vec<_>, Vec<_>) = self.delegates.iter().partition(|delegate| delegate.contains(':'));
        let is_delegate = |name: &str| names.iter().any(|delegate| delegate.eq_ignore_ascii_case(name));
        certificate.valid_dns_names().any(is_delegate)
            || certificate.valid_uri_names().any(|uri| uris.iter().any(|delegate| *delegate == uri))
    }

    /// Offers HTTP/1.1 beside HTTP/2.
    pub(super) fn with_http1(self) -> Self {
        Self { protocols: &[b"h2", b"http/1.1"], ..self }
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        let mut config = ServerConfig::clone(&self.config.get());
        config.alpn_protocols = self.protocols.iter().map(|name| name.to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }
}

/// The certificate of a connection's client.
#[derive(Debug, Clone)]
pub(super) struct ClientCertificate {
    /// The start of its SHA-256 in hex: enough to distinguish callers.
    pub(super) digest: Arc<str>,
    /// True if the client may call on behalf of others.
    pub(super) is_delegate: bool,
}

fn config(certificate: &SourceFile, key: &SourceFile, client_ca: Option<&SourceFile>) -> Result<ServerConfig, Cause> {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(ca) => builder.with_client_cert_verifier(
            WebPkiClientVerifier::builder_with_provider(Arc::new(pem::roots(ca)?), provider as Arc<CryptoProvider>)
                .build()
                .map_err(|error| ca.error(error))?,
        ),
    };
    let (chain, private_key) = pem::identity(certificate, key)?;
    builder.with_single_cert(chain, private_key).map_err(|error| key.error(error))
}
