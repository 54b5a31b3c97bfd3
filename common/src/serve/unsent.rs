//! The unsent bytes of an answer, and the permits that its call holds until they are sent.
//!
//! HTTP/2 takes up to 400 KiB of a body that its client does not read, and lets the body end. So a call's
//! permits are held here: each part of the answer that the transport holds keeps them.

use std::any::Any;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::time::{Duration, Instant};

use http::Request;
use parking_lot::Mutex;
use tonic::body::Body;
use tonic::codegen::Bytes;

use crate::admission::{Permit, Permits};

/// The most answers of a connection that are abandoned while others continue.
const MAX_ABANDONED: usize = 4;
/// The most abandoned answers of the process, and of one address. The transport holds up to 400 KiB of each.
const MAX_ALL_ABANDONED: [usize; 2] = [64, 16];
/// How many times the patience an abandoned answer may be unread. Then its connection is closed.
const ABANDONED_PATIENCE: u32 = 9;

/// The abandoned answers of the process, by the address of their client.
static ALL_ABANDONED: LazyLock<Permits> = LazyLock::new(|| {
    let [all, of_address] = MAX_ALL_ABANDONED;
    Permits::with_caller_limit(all, of_address)
});

/// The answers of one connection with unsent bytes.
#[derive(Debug, Default)]
pub(super) struct UnreadAnswers(Mutex<Reads>);

/// When answers were read.
#[derive(Debug, Default)]
struct Reads {
    answers: HashMap<u64, Read>,
    /// The last time that any of the connection's answers was read.
    last: Option<Instant>,
}

/// An answer with unsent bytes.
#[derive(Debug)]
struct Read {
    /// When it was last read.
    at: Instant,
    unsent: Weak<Unsent>,
    is_abandoned: bool,
}

/// The remedy for the unread answers of a connection.
#[derive(Debug)]
pub(super) enum Overdue {
    /// Nothing.
    None,
    /// These answers must be abandoned. Others are read.
    Answers(Vec<Arc<Unsent>>),
    /// It must be closed.
    Connection,
}

impl UnreadAnswers {
    /// Finds the answers that were not read for longer than `patience`.
    pub(super) fn overdue(&self, patience: Duration) -> Overdue {
        let Reads { answers, last } = &mut *self.0.lock();
        let is_recent = last.is_some_and(|last| last.elapsed() <= patience);
        if answers.values().any(|read| read.is_abandoned && read.at.elapsed() > patience * ABANDONED_PATIENCE) {
            return Overdue::Connection;
        }
        let count = answers.values().filter(|read| read.is_abandoned || read.at.elapsed() > patience).count();
        let overdue = answers.values_mut().filter(|read| !read.is_abandoned && read.at.elapsed() > patience);
        let mut abandoned = Vec::new();
        for read in overdue {
            if !is_recent || count > MAX_ABANDONED {
                return Overdue::Connection;
            }
            read.is_abandoned = true;
            abandoned.extend(read.unsent.upgrade());
        }
        if abandoned.is_empty() { Overdue::None } else { Overdue::Answers(abandoned) }
    }
}

/// An answer, as far as the transport has not taken it. None once it is abandoned.
pub(super) type Untaken = Arc<Mutex<Option<Rest>>>;

/// The rest of an answer.
#[derive(Debug)]
pub(super) struct Rest {
    pub(super) body: Body,
    /// The rest of the body's last data.
    pub(super) data: Bytes,
}

/// The unsent bytes of one answer.
#[derive(Debug)]
pub(super) struct Unsent {
    id: u64,
    /// None: not of a connection.
    connection: Option<Arc<UnreadAnswers>>,
    bytes: Mutex<usize>,
    held: Mutex<Vec<Box<dyn Any + Send>>>,
    untaken: Mutex<Weak<Mutex<Option<Rest>>>>,
    /// The address of the client. None for an answer that cannot be abandoned.
    address: Option<IpAddr>,
    /// Set once it is abandoned.
    abandoned: Mutex<Option<Permit>>,
}

impl Unsent {
    /// Creates the state of an answer on this connection, for a client at this address.
    pub(super) fn new(connection: Option<Arc<UnreadAnswers>>, address: Option<IpAddr>) -> Self {
        static IDS: AtomicU64 = AtomicU64::new(0);
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        let (bytes, held, untaken, abandoned) = Default::default();
        Self { id, connection, bytes, held, untaken, address, abandoned }
    }

    /// Returns the answer's body in the form that [`abandon`](Self::abandon) can end.
    pub(super) fn untaken(&self, body: Body) -> Untaken {
        let untaken = Arc::new(Mutex::new(Some(Rest { body, data: Bytes::new() })));
        *self.untaken.lock() = Arc::downgrade(&untaken);
        untaken
    }

    /// Ends the answer: its call, its permits, and its memory but the bytes that the transport holds. Returns
    /// false if it cannot be abandoned, or too many are, so that the connection must be closed.
    pub(super) fn abandon(&self) -> bool {
        let permit = self.address.map(|address| ALL_ABANDONED.acquire(&address.to_string().into()));
        let Some(Ok(permit)) = permit else { return false };
        *self.abandoned.lock() = Some(permit);
        let untaken = self.untaken.lock().upgrade();
        let rest = untaken.and_then(|untaken| untaken.lock().take());
        let held = std::mem::take(&mut *self.held.lock());
        drop((rest, held));
        true
    }

    /// Attaches this to the request of the answer. The request does not keep it.
    pub(super) fn attach(self: &Arc<Self>, request: &mut Request<Body>) {
        request.extensions_mut().insert(Arc::downgrade(self));
    }

    /// Returns the unsent bytes of a request's answer.
    pub(super) fn of(request: &Request<Body>) -> Option<Arc<Self>> {
        request.extensions().get::<Weak<Self>>()?.upgrade()
    }

    /// Holds a permit until the call of a request has ended and its answer is sent.
    pub(super) fn hold(request: &Request<Body>, permit: impl Any + Send) {
        if let Some(unsent) = Self::of(request) {
            unsent.held.lock().push(Box::new(permit));
        }
    }

    /// Returns the number of unsent bytes.
    pub(super) fn bytes(&self) -> usize {
        *self.bytes.lock()
    }

    /// Returns the same data, unsent until the transport drops it: it then is sent, or the stream is closed.
    pub(super) fn track(self: &Arc<Self>, data: Bytes) -> Bytes {
        let bytes = &mut *self.bytes.lock();
        *bytes += data.len();
        if let Some(UnreadAnswers(reads)) = self.connection.as_deref() {
            // More of the answer does not mean that it is read.
            reads.lock().answers.entry(self.id).or_insert_with(|| Read {
                at: Instant::now(),
                unsent: Arc::downgrade(self),
                is_abandoned: false,
            });
        }
        Bytes::from_owner(Part { data, unsent: Arc::clone(self) })
    }

    fn drop_part(&self, length: usize) {
        let bytes = &mut *self.bytes.lock();
        *bytes -= length;
        let Some(UnreadAnswers(reads)) = self.connection.as_deref() else { return };
        let Reads { answers, last } = &mut *reads.lock();
        let now = Instant::now();
        *last = Some(now);
        if *bytes == 0 {
            answers.remove(&self.id);
        } else if let Some(read) = answers.get_mut(&self.id) {
            read.at = now;
        }
    }
}

/// A part of an answer, as the transport holds it.
struct Part {
    data: Bytes,
    unsent: Arc<Unsent>,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.unsent.drop_part(self.data.len());
    }
}
