//! The address of an engine, and the credentials for it.

use std::path::PathBuf;

use tandem_common::call::{BearerToken, Credentials, authorities};
use tandem_common::status::chain;
use tandem_core::error::LoadError;

/// The address of an engine, and the credentials for it.
#[derive(Debug, Clone)]
pub struct Target {
    /// The address, an `http` or `https` URI.
    pub url: String,
    /// PEM file of the authorities that sign the engine's certificate.
    pub ca: Option<PathBuf>,
    /// File with the bearer token for the engine.
    pub token_file: Option<PathBuf>,
}

impl Target {
    /// Returns the bearer token for calls. None without a file.
    ///
    /// # Errors
    /// The file cannot be read, or has no token.
    pub(crate) fn token(&self) -> Result<Option<BearerToken>, LoadError> {
        let credentials = Credentials { token_file: self.token_file.clone(), ..Credentials::default() };
        credentials.token().map_err(|error| self.unusable(chain(&error)))
    }

    /// Returns the PEM file of authorities. None without a file.
    ///
    /// # Errors
    /// It cannot be read, or has no certificate.
    pub(crate) fn authorities(&self) -> Result<Option<Vec<u8>>, LoadError> {
        let pem = self.ca.as_deref().map(authorities).transpose();
        pem.map_err(|error| self.unusable(format!("--engine-ca {error}")))
    }

    /// Returns the error of an address or of credentials that cannot be used.
    pub(crate) fn unusable(&self, problem: String) -> LoadError {
        LoadError::Engine { url: self.url.clone(), problem }
    }
}
