//! The address after `--connect`.

use anyhow::{Result, anyhow, bail};
use tonic::transport::Uri;

use crate::args::Connection;

/// The address of a service, as the user wrote it and as a URI with scheme and port.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) written: String,
    pub(crate) uri: Uri,
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.written)
    }
}

impl Target {
    pub(crate) fn parse(connection: &Connection) -> Result<Self> {
        let written = connection.connect.clone().unwrap_or_default();
        let default_scheme = if connection.wants_tls() { "https" } else { "http" };
        let has_scheme = written.contains("://");
        let url = if has_scheme { written.clone() } else { format!("{default_scheme}://{written}") };
        let example = "write HOST:PORT, such as 127.0.0.1:50051";
        let uri: Uri = url.parse().map_err(|_| anyhow!("--connect {written} is no address; {example}"))?;
        let target = Self { written, uri };
        match (target.uri.scheme_str(), target.uri.port_u16()) {
            (Some("http"), _) if connection.wants_tls() => {
                bail!("--connect {target} does not use TLS, but --tls-ca and --tls-cert need it; write https://")
            }
            (Some("https"), _) if has_scheme => Ok(target),
            (Some("http" | "https"), Some(_)) => Ok(target),
            (Some("http" | "https"), None) => bail!(
                "--connect {target} has no port; {example}. render-svc prints its address when it starts, and its \
                 default port is 50051"
            ),
            _ => bail!("--connect {target} is neither http:// nor https://; {example}"),
        }
    }

    pub(crate) fn is_secured(&self) -> bool {
        self.uri.scheme_str() == Some("https")
    }

    pub(crate) fn host(&self) -> &str {
        self.uri.host().unwrap_or_default().trim_matches(['[', ']'])
    }

    pub(crate) fn port(&self) -> u16 {
        self.uri.port_u16().unwrap_or(443)
    }
}
