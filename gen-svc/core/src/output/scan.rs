//! Finds stop strings and reasoning markers in the bytes of an output, and holds back only bytes
//! that may become one.
//!
//! The scan finds the string that ends first, so that the result does not depend on later bytes. If
//! several strings end at the same byte, a stop string wins over a marker, then the longest string
//! wins.

use std::sync::Arc;

use super::strings::{Search, StringSet};

/// The search for stop strings and markers in one output.
#[derive(Debug, Clone)]
pub struct Scanner {
    stops: Search,
    /// The number of leading stop strings whose text is released when the string is found.
    shown: usize,
    markers: Search,
    /// Bytes that may become a stop string or a marker. Their count is the longer partial match of
    /// the two searches. Bytes of a match that began in the prompt are not among them.
    held: Vec<u8>,
}

/// The outcome of a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scanned<'a> {
    /// The released bytes: all bytes before `found`.
    pub released: Vec<u8>,
    /// The string that ended the scan.
    pub found: Option<Found>,
    /// The bytes after `found`, which are not searched yet.
    pub rest: &'a [u8],
}

/// A string that ended a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// A stop string. If it is shown, the released bytes end with it.
    Stop(String),
    /// A marker: its bytes in the output.
    Marker(Vec<u8>),
}

impl Scanner {
    /// Creates a scan for `stop_strings` and for `markers`, whose search may have begun in the
    /// prompt. A match of one of the first `shown` stop strings is released; a match of the others
    /// is not. Empty strings match nothing.
    #[must_use]
    pub fn new(stop_strings: &[String], shown: usize, markers: Search) -> Self {
        let stops = Search::new(&Arc::new(StringSet::new(stop_strings)));
        Self { stops, shown, markers, held: Vec::new() }
    }

    /// Scans more bytes, up to the end of the first string that they complete.
    pub fn push<'a>(&mut self, bytes: &'a [u8]) -> Scanned<'a> {
        for (at, &byte) in bytes.iter().enumerate() {
            self.held.push(byte);
            if let Some(found) = self.find(byte) {
                let released = std::mem::take(&mut self.held);
                return Scanned { released, found: Some(found), rest: &bytes[at + 1..] };
            }
        }
        let depth = self.stops.depth().max(self.markers.depth());
        let kept = self.held.split_off(self.held.len().saturating_sub(depth));
        Scanned { released: std::mem::replace(&mut self.held, kept), found: None, rest: &[] }
    }

    /// Releases the bytes that are held back, and restarts the search.
    pub fn finish(&mut self) -> Vec<u8> {
        self.stops.restart();
        self.markers.restart();
        std::mem::take(&mut self.held)
    }

    /// Replaces the markers to search for in later bytes.
    pub fn look_for(&mut self, markers: &Arc<StringSet>) {
        self.markers = Search::new(markers);
    }

    /// Searches up to `byte`, the last byte that is held back. Removes the found string from the
    /// held bytes, unless it is shown.
    fn find(&mut self, byte: u8) -> Option<Found> {
        let marker = self.markers.push(byte).map(|marker| marker.string.len());
        if let Some(stop) = self.stops.push(byte) {
            let hidden = if stop.index < self.shown { 0 } else { stop.string.len() };
            self.held.truncate(self.held.len() - hidden);
            return Some(Found::Stop(stop.string.to_owned()));
        }
        let before = self.held.len().saturating_sub(marker?);
        Some(Found::Marker(self.held.split_off(before)))
    }
}
