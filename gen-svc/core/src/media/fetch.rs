//! Fetches images at URLs, from the hosts that the operator allows.
//!
//! The addresses of a host are checked where the connection is made, so that no second lookup can
//! give other ones. Redirects and proxies are not used.

use std::io::Read as _;
use std::net::SocketAddr;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use http::Uri;
use ureq::config::Config;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};
use ureq::{Agent, Body};

use super::hosts::{ImageHost, Origin, is_public};
use crate::error::FetchError;

/// The time for all images of a request.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// The most bytes of all fetched images of a request.
const MAX_REQUEST_BYTES: usize = 64 << 20;
/// The threads that fetch the images of a request.
const THREADS: usize = 4;
/// The bytes of an answer that are read at once.
const PART_BYTES: usize = 64 << 10;
const USER_AGENT: &str = concat!("tandem-gen-svc/", env!("CARGO_PKG_VERSION"));

/// The time and the bytes left for the images of a request.
struct Bounds {
    end: Instant,
    bytes: AtomicUsize,
}

impl Bounds {
    fn take(&self, count: usize) -> Result<(), FetchError> {
        let taken = self.bytes.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(count));
        taken.map(drop).map_err(|_| FetchError::TooLargeTogether { limit: MAX_REQUEST_BYTES })
    }
}

/// Fetches images from the hosts of an allow-list.
#[derive(Debug)]
pub(super) struct Fetcher {
    hosts: Vec<Origin>,
    agent: Agent,
    max_bytes: usize,
}

impl Fetcher {
    /// Returns None if no host is allowed. An image may have `max_bytes`.
    pub(super) fn new(hosts: Vec<ImageHost>, max_bytes: usize) -> Option<Self> {
        if hosts.is_empty() {
            return None;
        }
        let config = Agent::config_builder()
            .proxy(None)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false)
            .user_agent(USER_AGENT)
            .accept("image/*")
            .build();
        let private = hosts.iter().filter(|host| host.may_be_private).map(|host| host.origin.clone()).collect();
        let resolver = PublicResolver { private, inner: DefaultResolver::default() };
        let agent = Agent::with_parts(config, DefaultConnector::default(), resolver);
        let hosts = hosts.into_iter().map(|host| host.origin).collect();
        Some(Self { hosts, agent, max_bytes })
    }

    /// Fetches images, several at once. Blocks. The results are in the order of the URLs.
    pub(super) fn fetch(&self, urls: &[&str]) -> Vec<Result<Vec<u8>, FetchError>> {
        let bounds = Bounds { end: Instant::now() + FETCH_TIMEOUT, bytes: AtomicUsize::new(MAX_REQUEST_BYTES) };
        let share = urls.len().div_ceil(THREADS).max(1);
        let fetch = |share: &[&str]| share.iter().map(|url| self.fetch_one(url, &bounds)).collect::<Vec<_>>();
        std::thread::scope(|scope| {
            let threads: Vec<_> = urls.chunks(share).map(|share| (share, scope.spawn(|| fetch(share)))).collect();
            let results = threads.into_iter().map(|(share, thread)| {
                // A result for each URL, also after a panic: the next share has other URLs.
                thread.join().unwrap_or_else(|_| share.iter().map(|_| Err(FetchError::Failed)).collect())
            });
            results.flatten().collect()
        })
    }

    fn fetch_one(&self, url: &str, bounds: &Bounds) -> Result<Vec<u8>, FetchError> {
        let uri: Uri = url.parse().map_err(|_| FetchError::Url)?;
        let origin = Origin::of(&uri).ok_or(FetchError::Url)?;
        if !self.hosts.contains(&origin) {
            return Err(FetchError::NotAllowed { origin: origin.to_string() });
        }
        let host = origin.host();
        let left = bounds.end.saturating_duration_since(Instant::now());
        let request = self.agent.get(uri).config().timeout_global(Some(left)).build();
        let response = request.call().map_err(|error| self.error(host, error))?;
        match response.status().as_u16() {
            200 => self.read(host, response.into_body(), bounds),
            status => Err(FetchError::Status { host: host.to_owned(), status }),
        }
    }

    fn read(&self, host: &str, body: Body, bounds: &Bounds) -> Result<Vec<u8>, FetchError> {
        let mut reader = body.into_with_config().limit(self.max_bytes as u64).reader();
        let (mut bytes, mut part) = (Vec::new(), vec![0; PART_BYTES]);
        loop {
            let count = reader.read(&mut part).map_err(|error| self.error(host, error.into()))?;
            if count == 0 {
                return Ok(bytes);
            }
            bounds.take(count)?;
            bytes.extend_from_slice(&part[..count]);
        }
    }

    fn error(&self, host: &str, error: ureq::Error) -> FetchError {
        let host = host.to_owned();
        match error {
            ureq::Error::Timeout(_) => FetchError::TooSlow { host, seconds: FETCH_TIMEOUT.as_secs() },
            ureq::Error::BodyExceedsLimit(_) => FetchError::TooLarge { host, limit: self.max_bytes },
            ureq::Error::Other(error) if error.is::<NoPublicAddress>() => FetchError::PrivateAddress { host },
            error => FetchError::Connection { host, problem: error.to_string() },
        }
    }
}

/// A name has no public address.
#[derive(Debug, thiserror::Error)]
#[error("no public address")]
struct NoPublicAddress;

/// Resolves names to public addresses, and those of some hosts to any.
#[derive(Debug)]
struct PublicResolver {
    private: Vec<Origin>,
    inner: DefaultResolver,
}

impl Resolver for PublicResolver {
    fn resolve(&self, uri: &Uri, config: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let resolved = self.inner.resolve(uri, config, timeout)?;
        if Origin::of(uri).is_some_and(|origin| self.private.contains(&origin)) {
            return Ok(resolved);
        }
        let mut public = self.empty();
        let is_public = |address: &&SocketAddr| is_public(address.ip());
        resolved.iter().filter(is_public).for_each(|&address| public.push(address));
        if public.is_empty() { Err(ureq::Error::Other(Box::new(NoPublicAddress))) } else { Ok(public) }
    }
}
