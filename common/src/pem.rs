//! Certificates and keys from PEM files, with errors that name the file.

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{CertificateError, Error, RootCertStore};

use crate::reload::{Cause, SourceFile};

/// Returns the certificates of a file, at least one.
pub(crate) fn certificates(file: &SourceFile) -> Result<Vec<CertificateDer<'static>>, Cause> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&file.content).collect();
    let chain = chain.map_err(|error| file.error(format!("invalid certificate: {error}")))?;
    match chain.first() {
        None => Err(file.error(format!("the file contains no certificate{}", found(&file.content)))),
        Some(first) => match ParsedCertificate::try_from(first) {
            Ok(_) => Ok(chain),
            Err(error) => Err(file.error(rejected(&error))),
        },
    }
}

/// Returns the certificates of a file as authorities.
pub(crate) fn roots(file: &SourceFile) -> Result<RootCertStore, Cause> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots.add(certificate).map_err(|error| file.error(rejected(&error)))?;
    }
    Ok(roots)
}

/// Returns a certificate with its chain, and its private key.
///
/// # Errors
/// A file is invalid, or the key is of another certificate.
pub(crate) fn identity(
    certificate: &SourceFile,
    key: &SourceFile,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), Cause> {
    let (chain, private_key) = (certificates(certificate)?, private_key(key)?);
    match CertifiedKey::from_der(chain.clone(), private_key.clone_key(), &ring::default_provider()) {
        Ok(_) => Ok((chain, private_key)),
        Err(Error::InconsistentKeys(_)) => {
            Err(key.error(format!("the key is not that of the certificate in {}", certificate.path.display())))
        }
        Err(error) => Err(key.error(error)),
    }
}

/// Returns the private key of a file.
fn private_key(file: &SourceFile) -> Result<PrivateKeyDer<'static>, Cause> {
    PrivateKeyDer::from_pem_slice(&file.content)
        .map_err(|_| file.error(format!("the file contains no private key that can be used{}", found(&file.content))))
}

/// Returns the kind of content that a PEM file has instead.
fn found(pem: &[u8]) -> &'static str {
    let contains = |label: &str| pem.windows(label.len()).any(|window| window == label.as_bytes());
    if contains("-----BEGIN ENCRYPTED PRIVATE KEY") || contains("ENCRYPTED\n") {
        "; it contains an encrypted private key: decrypt it with `openssl pkey -in FILE -out KEY`"
    } else if contains("PRIVATE KEY-----") {
        "; it contains a private key"
    } else if contains("-----BEGIN CERTIFICATE-----") {
        "; it contains a certificate"
    } else {
        ""
    }
}

/// Returns why a certificate is rejected, with the remedy for the most frequent cause.
fn rejected(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(CertificateError::Other(other)) if other.to_string().contains("CertVersion") => {
            "the certificate is X.509 version 1: sign it as version 3, for example with `openssl x509 -req -extfile`"
                .to_owned()
        }
        error => format!("invalid certificate: {error}"),
    }
}
