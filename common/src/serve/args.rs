//! The arguments of serving, from the command line and the environment.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::{BoolishValueParser, RangedU64ValueParser};
use http::HeaderValue;

use super::origin::origin;
use crate::address::listen_address;
use crate::random::random_u64;
use crate::timing::ANSWER_PATIENCE;

/// The limits, the drain time and the security settings of a server.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// Maximum size of a request message in bytes, images included
    ///
    /// The messages of all calls in progress, requests and answers until they are sent, may have four times
    /// as many, and those of one caller three times. The first 64 KiB of each call are not counted. A
    /// nested message, repeated string or enumerator counts 256 bytes more than its size, and a value of
    /// JSON text 64. A request takes up to eight times the counted bytes in memory while it is answered.
    #[arg(
        long,
        env = "TANDEM_MAX_MESSAGE_BYTES",
        default_value_t = Self::DEFAULT.max_message_bytes,
        value_name = "BYTES",
        help_heading = "Serving"
    )]
    pub max_message_bytes: usize,

    /// Maximum number of concurrent calls; further calls are rejected at once. Health checks are
    /// not counted
    ///
    /// One caller may have at most three quarters of them. Callers are identified by the name of their
    /// token, else by their certificate, else by their address. There may be 4,096 connections, or as many
    /// as calls if these are more, of one address at most three quarters.
    #[arg(
        long,
        env = "TANDEM_MAX_CALLS",
        default_value_t = Self::DEFAULT.max_calls,
        value_parser = RangedU64ValueParser::<usize>::new().range(1..),
        value_name = "CALLS",
        help_heading = "Serving"
    )]
    pub max_calls: usize,

    /// Maximum connection age in seconds, plus up to 10 % jitter [default: unlimited]
    ///
    /// Running calls finish, then clients reconnect. A call that arrives while the connection
    /// closes is not processed. Clients with retries repeat it.
    #[arg(
        long,
        env = "TANDEM_MAX_CONNECTION_AGE_SECONDS",
        value_parser = RangedU64ValueParser::<u64>::new().range(1..=31_536_000),
        value_name = "SECONDS",
        help_heading = "Serving"
    )]
    pub max_connection_age_seconds: Option<u64>,

    /// Shutdown grace period in seconds. Keep it below the orchestrator's own (Kubernetes: 30)
    ///
    /// After SIGTERM, calls in progress may finish within this period. A second SIGINT ends the
    /// process at once.
    #[arg(
        long,
        env = "TANDEM_DRAIN_SECONDS",
        default_value_t = Self::DEFAULT.drain_seconds,
        value_name = "SECONDS",
        help_heading = "Serving"
    )]
    pub drain_seconds: u64,

    /// Seconds after SIGTERM in which a ready service still accepts calls, while health reports
    /// NOT_SERVING. Then the drain begins
    ///
    /// Load balancers see the health, or the removed endpoint, only after a while. A second SIGTERM
    /// ends the delay. The orchestrator's own grace period must be longer than this and
    /// --drain-seconds together.
    #[arg(
        long,
        env = "TANDEM_DRAIN_DELAY_SECONDS",
        default_value_t = Self::DEFAULT.drain_delay_seconds,
        value_name = "SECONDS",
        help_heading = "Serving"
    )]
    pub drain_delay_seconds: u64,

    /// Address of plain HTTP probes, without TLS and token: /livez and /readyz [default: disabled]
    ///
    /// /readyz is 200 while health reports SERVING, else 503. /livez is 503 only if a restart is the
    /// remedy: the engine has failed or stalled.
    #[arg(
        long,
        env = "TANDEM_HEALTH_LISTEN",
        value_parser = listen_address,
        value_name = "ADDRESS",
        help_heading = "Serving"
    )]
    pub health_listen: Option<SocketAddr>,

    /// Origin of web pages that may call the service with gRPC-Web, such as
    /// `https://chat.example.com`, or `*` for any. May be repeated [default: none]
    ///
    /// Requests of other pages are refused. Programs that are no browsers send no origin.
    #[arg(
        long = "allowed-origin",
        env = "TANDEM_ALLOWED_ORIGINS",
        value_name = "ORIGIN",
        value_delimiter = ',',
        value_parser = origin,
        help_heading = "Serving"
    )]
    pub allowed_origins: Vec<HeaderValue>,

    /// Connections, or [`max_calls`](Self::max_calls) if that is more. Further connections are closed at once.
    #[arg(skip = Self::DEFAULT.max_connections)]
    pub max_connections: usize,

    /// Seconds for which a client may leave an answer unread. Then its connection is closed. A client that
    /// reads at least 16 KiB of the answer within this time keeps it. If it reads other answers of the
    /// connection, as a proxy does, up to four unread ones are ended instead.
    #[arg(skip = Self::DEFAULT.answer_patience_seconds)]
    pub answer_patience_seconds: u64,

    /// TLS and tokens of connections.
    #[command(flatten)]
    pub security: SecurityArgs,
}

impl ServeArgs {
    /// The defaults of the flags.
    pub const DEFAULT: Self = Self {
        max_message_bytes: 32 << 20,
        max_calls: 1024,
        max_connection_age_seconds: None,
        drain_seconds: 25,
        drain_delay_seconds: 0,
        health_listen: None,
        allowed_origins: Vec::new(),
        max_connections: 4096,
        answer_patience_seconds: ANSWER_PATIENCE.as_secs(),
        security: SecurityArgs::DEFAULT,
    };

    /// Returns the limit of the bytes of all messages in progress.
    #[must_use]
    pub fn max_total_message_bytes(&self) -> usize {
        self.max_message_bytes.saturating_mul(4)
    }

    /// Returns the maximum number of connections: enough that each call may have one.
    #[must_use]
    pub fn max_connections(&self) -> usize {
        self.max_connections.max(self.max_calls)
    }

    /// Returns the time for which a client may leave an answer unread.
    pub(super) fn answer_patience(&self) -> Duration {
        Duration::from_secs(self.answer_patience_seconds)
    }

    /// Returns the time between the request to shut down and the drain.
    #[must_use]
    pub fn drain_delay(&self) -> Duration {
        Duration::from_secs(self.drain_delay_seconds)
    }

    /// Returns the maximum connection age with jitter. Without jitter, all clients would reconnect
    /// at once.
    pub(super) fn max_connection_age(&self) -> Option<Duration> {
        let jitter = random_u64() as f64 / u64::MAX as f64;
        self.max_connection_age_seconds.map(|seconds| Duration::from_secs(seconds).mul_f64(1.0 + 0.1 * jitter))
    }
}

impl Default for ServeArgs {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// TLS and tokens of a server. Files are checked every five seconds and reloaded when they have
/// changed.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Security")]
pub struct SecurityArgs {
    /// PEM file of the TLS certificate, followed by its chain. Reloaded when it changes, like all
    /// TLS and token files
    #[arg(long, env = "TANDEM_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,

    /// PEM file of the certificate's private key
    #[arg(long, env = "TANDEM_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,

    /// PEM file of certificate authorities. Clients must have a certificate signed by one of these
    /// authorities
    #[arg(long, env = "TANDEM_TLS_CLIENT_CA", value_name = "FILE", requires = "tls_cert")]
    pub tls_client_ca: Option<PathBuf>,

    /// Name of client certificates that may call on behalf of others: a DNS name or a URI. May be repeated
    ///
    /// It is for a render-svc in front of gen-svc: limits then apply to the callers that it names. The name
    /// is one of the certificate's subject alternative names, such as `render-svc` or
    /// `spiffe://example.com/render-svc`. A token marked `delegate` has the same effect.
    #[arg(
        long = "tls-delegate",
        env = "TANDEM_TLS_DELEGATES",
        value_name = "NAME",
        value_delimiter = ',',
        value_parser = certificate_name,
        requires = "tls_client_ca"
    )]
    pub tls_delegates: Vec<String>,

    /// File of accepted bearer tokens, one per line. Health checks need no token
    ///
    /// A line is a token, optionally followed by its expiry time and words, such as
    /// `s3cret 2027-01-31T00:00:00Z name=search max-priority=5`. The name identifies the holder in
    /// logs, metrics and limits; all tokens of one name share its limits. `max-priority` limits the
    /// priority of the holder's requests; without it, this is 0, and for a delegate the server's. `delegate` is for a render-svc in front of gen-svc: limits
    /// then apply to the callers that it names. Lines that start with # are skipped. To change the
    /// tokens, replace the file; do not write into it.
    #[arg(long, env = "TANDEM_TOKEN_FILE", value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// Listen on a non-loopback address without TLS and tokens, because another component protects
    /// it
    #[arg(long, env = "TANDEM_INSECURE", value_parser = BoolishValueParser::new())]
    pub insecure: bool,
}

/// Reads a name of a certificate. DNS names are in lower case.
fn certificate_name(text: &str) -> Result<String, String> {
    let is_name = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    match is_name {
        true if text.contains(':') => Ok(text.to_owned()),
        true => Ok(text.to_ascii_lowercase()),
        false => Err("must be a DNS name or a URI of a certificate".to_owned()),
    }
}

impl SecurityArgs {
    /// Neither TLS nor tokens.
    const DEFAULT: Self = Self {
        tls_cert: None,
        tls_key: None,
        tls_client_ca: None,
        tls_delegates: Vec::new(),
        token_file: None,
        insecure: false,
    };
}

impl Default for SecurityArgs {
    fn default() -> Self {
        Self::DEFAULT
    }
}
