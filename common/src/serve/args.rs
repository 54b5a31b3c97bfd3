//! How to serve, as the command line and the environment say.

use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::RangedU64ValueParser;

/// How to serve.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// Largest request message, in bytes. Images travel inside requests.
    #[arg(long, env = "TANDEM_MAX_MESSAGE_BYTES", default_value_t = 32 << 20, value_name = "BYTES", help_heading = "Serving")]
    pub max_message_bytes: usize,

    /// Calls that are worked on at once, in all connections; one more is refused at once. Health checks do not count.
    #[arg(
        long,
        env = "TANDEM_MAX_CALLS",
        default_value_t = 1024,
        value_parser = RangedU64ValueParser::<usize>::new().range(1..),
        value_name = "CALLS",
        help_heading = "Serving"
    )]
    pub max_calls: usize,

    /// Calls that one connection may have open at once; its next ones wait in the caller.
    #[arg(
        long,
        env = "TANDEM_MAX_CONNECTION_CALLS",
        default_value_t = 256,
        value_name = "CALLS",
        help_heading = "Serving"
    )]
    pub max_connection_calls: u32,

    /// Connections; one more is closed at once.
    #[arg(
        long,
        env = "TANDEM_MAX_CONNECTIONS",
        default_value_t = 4096,
        value_name = "CONNECTIONS",
        help_heading = "Serving"
    )]
    pub max_connections: usize,

    /// After how long a connection takes no more calls, in seconds, up to a tenth more: what is under way on it goes on, and callers
    /// connect again, to whichever services there are by then. A call that comes in that moment is not taken, which clients that retry
    /// what was not taken do not notice. Default: never.
    #[arg(
        long,
        env = "TANDEM_MAX_CONNECTION_AGE_SECONDS",
        value_parser = RangedU64ValueParser::<u64>::new().range(1..=31_536_000),
        value_name = "SECONDS",
        help_heading = "Serving"
    )]
    pub max_connection_age_seconds: Option<u64>,

    /// How long requests in flight may take to finish after SIGTERM, in seconds: less than those who stop it wait before they kill it,
    /// which is 30 in Kubernetes. A second SIGINT kills it at once.
    #[arg(long, env = "TANDEM_DRAIN_SECONDS", default_value_t = 25, value_name = "SECONDS", help_heading = "Serving")]
    pub drain_seconds: u64,

    /// Who may call.
    #[command(flatten)]
    pub security: SecurityArgs,
}

impl ServeArgs {
    /// Not the same for all services, or their callers would come all at once.
    pub(super) fn max_connection_age(&self) -> Option<Duration> {
        let jitter = RandomState::new().hash_one(()) as f64 / u64::MAX as f64;
        self.max_connection_age_seconds.map(|seconds| Duration::from_secs(seconds).mul_f64(1.0 + 0.1 * jitter))
    }
}

impl Default for ServeArgs {
    fn default() -> Self {
        Self {
            max_message_bytes: 32 << 20,
            max_calls: 1024,
            max_connection_calls: 256,
            max_connections: 4096,
            max_connection_age_seconds: None,
            drain_seconds: 25,
            security: SecurityArgs::default(),
        }
    }
}

/// Who may call, and how calls are kept from others. Files are looked at every five seconds, and read again when they have changed.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Security")]
pub struct SecurityArgs {
    /// Serve TLS with this certificate, PEM, its chain behind it. Read again when it changes, as are all files here.
    #[arg(long, env = "TANDEM_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,

    /// The certificate's key, PEM.
    #[arg(long, env = "TANDEM_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,

    /// Let in only callers with a certificate that one of these has signed, PEM.
    #[arg(long, env = "TANDEM_TLS_CLIENT_CA", value_name = "FILE", requires = "tls_cert")]
    pub tls_client_ca: Option<PathBuf>,

    /// Let in only calls with one of these bearer tokens. A line is a token, and behind it, if it expires, when: TOKEN
    /// 2027-01-31T00:00:00Z. Lines that start with # do not count. Put a new file in the old one's place rather than writing into it.
    /// Health checks need no token.
    #[arg(long, env = "TANDEM_TOKEN_FILE", value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// Listen where others can reach it, without TLS and without tokens: something else protects it.
    #[arg(long, env = "TANDEM_INSECURE")]
    pub insecure: bool,
}
