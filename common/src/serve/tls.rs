//! TLS, with certificates that are read again when they change.

use std::path::PathBuf;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use crate::reload::{Cause, Reloaded};

/// What new connections are secured with.
#[derive(Clone)]
pub(super) struct Tls {
    config: Arc<Reloaded<ServerConfig>>,
    /// What is spoken over them (ALPN).
    protocols: &'static [&'static [u8]],
}

impl Tls {
    /// PEM files: our certificate with its chain, its key, and, if callers must have a certificate, who signs theirs.
    pub(super) fn watch(certificate: PathBuf, key: PathBuf, client_ca: Option<PathBuf>) -> Result<Self, Cause> {
        let files = [certificate, key].into_iter().chain(client_ca).collect();
        let config = Reloaded::watch(files, |contents| config(&contents[0], &contents[1], contents.get(2)))?;
        Ok(Self { config, protocols: &[b"h2"] })
    }

    /// The same for whoever speaks HTTP.
    pub(super) fn for_web(self) -> Self {
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
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| format!("the key: {error}"))?;
    Ok(builder.with_single_cert(chain, key)?)
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Cause> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match chain.map_err(|error| format!("the certificate: {error}"))? {
        chain if chain.is_empty() => Err("there is no certificate in it".into()),
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
