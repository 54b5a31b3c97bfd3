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
pub(super) struct Tls(Arc<Reloaded<TlsAcceptor>>);

impl Tls {
    /// PEM files: our certificate with its chain, its key, and, if callers must have a certificate, who signs theirs.
    pub(super) fn watch(certificate: PathBuf, key: PathBuf, client_ca: Option<PathBuf>) -> Result<Self, Cause> {
        let files = [certificate, key].into_iter().chain(client_ca).collect();
        Reloaded::watch(files, |contents| acceptor(&contents[0], &contents[1], contents.get(2))).map(Self)
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::clone(&self.0.get())
    }
}

fn acceptor(certificate: &[u8], key: &[u8], client_ca: Option<&Vec<u8>>) -> Result<TlsAcceptor, Cause> {
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
    let mut config = builder.with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
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
