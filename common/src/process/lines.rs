//! The lines that a service prints to stdout.

use std::io::{self, BufRead as _, BufReader, Read};
use std::process::ChildStdout;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// One line of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Line {
    /// The ready line, with the address of the service.
    Address(String),
    /// The line with the address of the metrics page.
    Metrics(String),
    /// Any other line.
    Other,
    /// No line in the given time.
    NoneYet,
    /// The service closed its stdout.
    End,
}

/// The lines up to the ready line. A thread reads them, and discards all that follows, so that the
/// pipe never fills.
#[derive(Debug)]
pub(crate) struct Lines(Receiver<Line>);

impl Lines {
    pub(crate) fn read(name: &str, stdout: ChildStdout) -> Self {
        let (send, receive) = mpsc::channel();
        let name = name.to_owned();
        thread::spawn(move || {
            let mut stdout = BufReader::new(stdout);
            for line in stdout.by_ref().lines().map_while(Result::ok) {
                let line = parse(&name, &line);
                let is_ready = matches!(line, Line::Address(_));
                if send.send(line).is_err() || is_ready {
                    break;
                }
            }
            drop(send);
            let _ = io::copy(&mut stdout, &mut io::sink());
        });
        Self(receive)
    }

    pub(crate) fn next(&self, patience: Duration) -> Line {
        match self.0.recv_timeout(patience) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => Line::NoneYet,
            Err(RecvTimeoutError::Disconnected) => Line::End,
        }
    }
}

fn parse(name: &str, line: &str) -> Line {
    match line.strip_prefix(name).and_then(|rest| rest.split_once(" listening on ")) {
        Some(("", address)) => Line::Address(address.to_owned()),
        Some((" metrics", address)) => Line::Metrics(address.to_owned()),
        _ => Line::Other,
    }
}
