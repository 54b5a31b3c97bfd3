//! Server-sent events, as engines stream them over HTTP.

use reqwest::Response;

use crate::call::CallError;

/// The data of the events of a response, one after the other.
#[derive(Debug)]
pub(crate) struct Events {
    response: Response,
    /// The most bytes of an event.
    most: usize,
    /// Bytes that are not read yet.
    buffer: Vec<u8>,
    /// The start of the unread line in the buffer.
    start: usize,
    /// The bytes from `start` that are known to have no line end.
    scanned: usize,
}

impl Events {
    pub(crate) fn new(response: Response, most: usize) -> Self {
        Self { response, most, buffer: Vec::new(), start: 0, scanned: 0 }
    }

    /// Returns the text of the next field `data`, or of the field `error` of llama.cpp. None: the stream has ended.
    ///
    /// # Errors
    /// The connection broke, or an event is too large.
    pub(crate) async fn next(&mut self) -> Result<Option<String>, CallError> {
        loop {
            while let Some(line) = self.line() {
                let data = line.strip_prefix("data:").or_else(|| line.strip_prefix("error:"));
                if let Some(data) = data {
                    return Ok(Some(data.trim().to_owned()));
                }
            }
            match self.response.chunk().await {
                Ok(Some(bytes)) => self.add(&bytes)?,
                Ok(None) => return Ok(None),
                Err(error) => return Err(CallError::lost(&error)),
            }
        }
    }

    /// Takes the next whole line out of the buffer. Bytes that are no UTF-8 are replaced: no protocol sends them.
    fn line(&mut self) -> Option<String> {
        let from = self.start + self.scanned;
        let Some(length) = self.buffer[from..].iter().position(|byte| *byte == b'\n') else {
            self.scanned = self.buffer.len() - self.start;
            return None;
        };
        let line = String::from_utf8_lossy(&self.buffer[self.start..from + length]).trim_end_matches('\r').to_owned();
        (self.start, self.scanned) = (from + length + 1, 0);
        Some(line)
    }

    fn add(&mut self, bytes: &[u8]) -> Result<(), CallError> {
        self.buffer.drain(..self.start);
        self.start = 0;
        if self.buffer.len() + bytes.len() > self.most {
            return Err(CallError::Contradiction(format!("an event has more than {} bytes", self.most)));
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }
}
