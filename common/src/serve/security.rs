//! The protection of a service's connections: TLS and bearer tokens.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::args::SecurityArgs;
use super::error::ServeError;
use super::tls::Tls;
use super::tokens::Tokens;

/// The configured TLS and tokens, with the contents of their files.
#[derive(Clone)]
pub struct Security {
    args: SecurityArgs,
    pub(super) tls: Option<Tls>,
    pub(super) tokens: Option<Tokens>,
}

impl Security {
    /// Reads the files now, and reloads them when they change.
    ///
    /// # Errors
    /// Fails if a file cannot be read or is invalid.
    pub fn open(args: &SecurityArgs) -> Result<Self, ServeError> {
        let tls = |source| ServeError::Tls { source };
        let tls = match (&args.tls_cert, &args.tls_key) {
            (None, None) if args.tls_client_ca.is_none() => None,
            (Some(certificate), Some(key)) => {
                let watched = Tls::watch(certificate.clone(), key.clone(), args.tls_client_ca.clone()).map_err(tls)?;
                Some(watched.with_delegates(&args.tls_delegates))
            }
            _ => return Err(tls("--tls-cert, --tls-key: both are required".into())),
        };
        let tokens = args.token_file.clone().map(Tokens::watch).transpose();
        Ok(Self { tls, tokens: tokens.map_err(|source| ServeError::Tokens { source })?, args: args.clone() })
    }

    /// Returns the same protection with other tokens.
    ///
    /// # Errors
    /// Fails if the file cannot be read or is invalid.
    pub fn with_tokens(&self, file: PathBuf) -> Result<Self, ServeError> {
        let tokens = Some(Tokens::watch(file.clone()).map_err(|source| ServeError::Tokens { source })?);
        Ok(Self { args: SecurityArgs { token_file: Some(file), ..self.args.clone() }, tls: self.tls.clone(), tokens })
    }

    /// Checks the address of a service or of a page.
    ///
    /// # Errors
    /// Fails if the address is not a loopback address and neither TLS, tokens nor `--insecure` is
    /// set.
    pub fn check(&self, address: SocketAddr) -> Result<(), ServeError> {
        let is_protected = self.tls.is_some() || self.tokens.is_some();
        if address.ip().is_loopback() || is_protected || self.args.insecure {
            Ok(())
        } else {
            Err(ServeError::Unprotected { address })
        }
    }

    /// Checks the address of an admin API.
    ///
    /// # Errors
    /// Fails if the address is not a loopback address and neither client certificates, tokens nor
    /// `--insecure` is set.
    pub fn check_operators(&self, address: SocketAddr) -> Result<(), ServeError> {
        let is_authenticated = self.args.tls_client_ca.is_some() || self.tokens.is_some();
        if address.ip().is_loopback() || is_authenticated || self.args.insecure {
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
