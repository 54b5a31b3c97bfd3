//! The protection of a service's connections: TLS and bearer tokens.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::args::SecurityArgs;
use super::error::ServeError;
use super::tls::Tls;
use super::tokens::Tokens;

/// What callers must show, and how connections are secured: as configured, with the files that this needs.
#[derive(Clone)]
pub struct Security {
    args: SecurityArgs,
    pub(super) tls: Option<Tls>,
    pub(super) tokens: Option<Tokens>,
}

impl Security {
    /// Reads the files, now and again.
    ///
    /// # Errors
    /// They cannot be read, or make no sense.
    pub fn open(args: &SecurityArgs) -> Result<Self, ServeError> {
        let tls = |source| ServeError::Tls { source };
        let tls = match (&args.tls_cert, &args.tls_key) {
            (None, None) if args.tls_client_ca.is_none() => None,
            (Some(certificate), Some(key)) => {
                Some(Tls::watch(certificate.clone(), key.clone(), args.tls_client_ca.clone()).map_err(tls)?)
            }
            _ => return Err(tls("a certificate and its key are needed together".into())),
        };
        let tokens = args.token_file.clone().map(Tokens::watch).transpose();
        Ok(Self { tls, tokens: tokens.map_err(|source| ServeError::Tokens { source })?, args: args.clone() })
    }

    /// The same with other tokens.
    ///
    /// # Errors
    /// The file cannot be read, or makes no sense.
    pub fn with_tokens(&self, file: PathBuf) -> Result<Self, ServeError> {
        let tokens = Some(Tokens::watch(file.clone()).map_err(|source| ServeError::Tokens { source })?);
        Ok(Self { args: SecurityArgs { token_file: Some(file), ..self.args.clone() }, tls: self.tls.clone(), tokens })
    }

    /// Whether to listen on an address: on one that others can reach only if callers are known or connections secured.
    pub(super) fn check(&self, address: SocketAddr) -> Result<(), ServeError> {
        let is_protected = self.tls.is_some() || self.tokens.is_some();
        if address.ip().is_loopback() || is_protected || self.args.insecure {
            Ok(())
        } else {
            Err(ServeError::Unprotected { address })
        }
    }

    /// Whether to listen there for those who run the service: on an address that others can reach only if callers are known.
    ///
    /// # Errors
    /// Anyone could be a caller.
    pub fn check_operators(&self, address: SocketAddr) -> Result<(), ServeError> {
        let knows_callers = self.args.tls_client_ca.is_some() || self.tokens.is_some();
        if address.ip().is_loopback() || knows_callers || self.args.insecure {
            Ok(())
        } else {
            Err(ServeError::Unprotected { address })
        }
    }
}

impl std::fmt::Debug for Security {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Security").field(&self.args).finish()
    }
}
