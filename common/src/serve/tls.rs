//! TLS, with certificates that are reloaded when they change.

use std::path::PathBuf;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use crate::reload::{Cause, Reloaded};

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
        let config = Reloaded::watch(files, |contents| config(&contents[0], &contents[1], contents.get(2)))?;
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

fn config(certificate: &[u8], key: &[u8], client_ca: Option<&Vec<u8>>) -> Result<ServerConfig, Cause> {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(ca) => builder.with_client_cert_verifier(
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots(ca)?), provider as Arc<CryptoProvider>)
                .build()?,
        ),
    };
    let chain = certificates(certificate)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| format!("invalid private key: {error}"))?;
    Ok(builder.with_single_cert(chain, key)?)
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Cause> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match chain.map_err(|error| format!("invalid certificate: {error}"))? {
        chain if chain.is_empty() => Err("the file contains no certificate".into()),
        chain => Ok(chain),
    }
}

fn roots(pem: &[u8]) -> Result<RootCertStore, Cause> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem)? {
        roots.add(certificate)?;
    }
    Ok(roots)
}
