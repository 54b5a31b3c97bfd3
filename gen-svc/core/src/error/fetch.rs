//! The problems of images at URLs. It imports no other module, so that `media` can raise them and
//! the errors of requests can contain them.

/// Why an image at a URL was not fetched.
#[derive(Debug, Clone, thiserror::Error)]
pub enum FetchError {
    /// The text is not a URL that can be fetched.
    #[error("must be an http or https URL, without user name and password")]
    Url,
    /// The allow-list is empty.
    #[error("images at URLs are not fetched: no host is allowed (--image-hosts)")]
    NoHosts,
    /// The host is not in the allow-list.
    #[error("images of {origin} are not allowed (--image-hosts)")]
    NotAllowed {
        /// Scheme, host and port.
        origin: String,
    },
    /// The host has private addresses only.
    #[error("{host} has no public address (--image-hosts private:HOST)")]
    PrivateAddress { host: String },
    /// The answer is another status than 200. Redirects are not followed.
    #[error("{host} answers with HTTP status {status}, not 200")]
    Status { host: String, status: u16 },
    /// The image is too large.
    #[error("image at {host} has more than {limit} bytes")]
    TooLarge { host: String, limit: usize },
    /// The images at URLs are too large together.
    #[error("images at URLs have more than {limit} bytes together")]
    TooLargeTogether { limit: usize },
    /// The time is over.
    #[error("{host} sends no image within {seconds} s")]
    TooSlow {
        host: String,
        /// The limit.
        seconds: u64,
    },
    /// The connection failed.
    #[error("{host} cannot be reached: {problem}")]
    Connection { host: String, problem: String },
    /// A fault of the service.
    #[error("the image could not be fetched; the log has the cause")]
    Failed,
}
