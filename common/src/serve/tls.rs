//! TLS, with certificates that are reloaded when they change.

use std::path::PathBuf;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::server::WebPkiClientVerifier;

use crate::pem;
use crate::reload::{Cause, Reloaded, SourceFile};

/// The TLS configuration of new connections.
#[derive(Clone)]
pub(super) struct Tls {
    config: Arc<Reloaded<ServerConfig>>,
    /// The application protocols offered (ALPN).
    protocols: &'static [&'static [u8]],
}

impl Tls {
    /// Reads PEM files: the certificate with its chain, its key and, to require client
    /// certificates, the authorities that sign them.
    pub(super) fn watch(certificate: PathBuf, key: PathBuf, client_ca: Option<PathBuf>) -> Result<Self, Cause> {
        let files = [certificate, key].into_iter().chain(client_ca).collect();
        let config = Reloaded::watch(files, |files| config(&files[0], &files[1], files.get(2)))?;
        Ok(Self { config, protocols: &[b"h2"] })
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
    let (chain, private_key) = (pem::certificates(certificate)?, pem::key(key)?);
    // The remaining error: the key is not the certificate's.
    builder.with_single_cert(chain, private_key).map_err(|error| key.error(error))
}
