//! The permits of connections.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use super::caller::network;
use crate::admission::{Permit, Permits};

/// The first bytes of a connection over HTTP/2. No method of HTTP/1.1 begins with them.
const HTTP2: &[u8] = b"PRI";
/// One connection of this many may be one over HTTP/1.1, whose headers may take 400 KiB before the
/// caller is known.
const HTTP1_SHARE: usize = 8;
/// The fewest connections over HTTP/1.1.
const MIN_HTTP1: usize = 16;

/// The permits of a port.
#[derive(Debug, Clone)]
pub(super) struct Places {
    pub(super) all: Arc<Permits>,
    http1: Permits,
}

impl Places {
    /// Creates places for `limit` connections. A quarter is kept back from any one address.
    pub(super) fn new(limit: usize) -> Self {
        let http1 = (limit / HTTP1_SHARE).max(MIN_HTTP1.min(limit));
        Self { all: Arc::new(Permits::new(limit)), http1: Permits::new(http1) }
    }

    /// Creates places for connections that may all be over HTTP/1.1.
    pub(super) fn of_pages(limit: usize) -> Self {
        Self { all: Arc::new(Permits::new(limit)), http1: Permits::new(usize::MAX) }
    }

    /// Takes a place for an address, if there is one.
    pub(super) fn acquire(&self, address: IpAddr) -> Option<Place> {
        let caller: Arc<str> = network(address).to_string().into();
        let permit = self.all.acquire(&caller).ok()?;
        Some(Place {
            _permit: permit,
            protocol: Protocol::Unknown { start: Vec::new(), caller, http1: self.http1.clone() },
        })
    }
}

/// A connection's place.
#[derive(Debug)]
pub(super) struct Place {
    _permit: Permit,
    protocol: Protocol,
}

#[derive(Debug)]
enum Protocol {
    Unknown { start: Vec<u8>, caller: Arc<str>, http1: Permits },
    Http2,
    Http1 { _permit: Permit },
}

impl Place {
    /// Looks at the bytes that were read.
    ///
    /// # Errors
    /// They begin a connection over HTTP/1.1, and there is no permit for one more.
    pub(super) fn read(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Protocol::Unknown { start, caller, http1 } = &mut self.protocol else { return Ok(()) };
        start.extend(bytes.iter().take(HTTP2.len() - start.len()));
        if start == HTTP2 {
            self.protocol = Protocol::Http2;
        } else if !HTTP2.starts_with(start) {
            let permit = http1.acquire(caller).map_err(|_| io::ErrorKind::QuotaExceeded)?;
            self.protocol = Protocol::Http1 { _permit: permit };
        }
        Ok(())
    }
}
