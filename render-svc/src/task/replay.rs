//! Removes from a resumed output the part that the caller already has.
//!
//! A resumed output starts before the last delivered token, not after it. If only the end of an
//! output was lost, the replica generates that token again and then ends the output as before.

use tandem_common::pb::generate::v1::Delta;

/// The delivered length of an output, and the length that the current replica must repeat.
#[derive(Debug, Default)]
pub(super) struct ReplayCursor {
    /// Everything before the last delivered token. A resumed output starts here.
    before_last_token: Position,
    /// Everything up to and including the last delivered token. A token's text may be spread over
    /// several deltas. The last of these has the token's id.
    after_last_token: Position,
    /// Everything delivered.
    delivered: Position,
    /// Output that the current replica must still repeat.
    replayed: Position,
}

/// A length of output, in each of its forms.
#[derive(Debug, Clone, Copy, Default)]
struct Position {
    /// Prompt tokens with log probabilities.
    prompt_tokens: usize,
    token_ids: usize,
    /// Bytes of [`Delta::text`].
    text: usize,
    /// Bytes of [`Delta::bytes`].
    bytes: usize,
}

impl Position {
    fn since(self, start: Self) -> Self {
        Self {
            prompt_tokens: self.prompt_tokens - start.prompt_tokens,
            token_ids: self.token_ids - start.token_ids,
            text: self.text - start.text,
            bytes: self.bytes - start.bytes,
        }
    }
}

impl ReplayCursor {
    /// Returns the number of token ids before the start of a resumed output.
    pub(super) fn resume_at(&self) -> usize {
        self.before_last_token.token_ids
    }

    /// Makes a resumed output start after the last delivered token, which is then not repeated.
    pub(super) fn keep_last_token(&mut self) {
        self.before_last_token = self.after_last_token;
    }

    /// Returns the number of token ids, and of the text's bytes, that the current replica must still repeat.
    pub(super) fn left_to_repeat(&self) -> (usize, usize) {
        (self.replayed.token_ids, self.replayed.text)
    }

    /// Starts the replay of a resumed output.
    pub(super) fn restart(&mut self) {
        self.replayed = self.delivered.since(self.before_last_token);
    }

    /// Removes prompt tokens that were delivered before, and records the rest as delivered.
    pub(super) fn advance_prompt<T>(&mut self, tokens: &mut Vec<T>) {
        remove_replayed(tokens, &mut self.replayed.prompt_tokens);
        self.delivered.prompt_tokens += tokens.len();
    }

    /// Removes output that was delivered before, and records the rest as delivered.
    pub(super) fn advance(&mut self, delta: &mut Delta) {
        self.remove_from(delta);
        let has_token = !delta.token_ids.is_empty();
        if has_token {
            self.before_last_token = self.after_last_token;
        }
        self.delivered.token_ids += delta.token_ids.len();
        self.delivered.text += delta.text.len();
        self.delivered.bytes += delta.bytes.len();
        if has_token {
            self.after_last_token = self.delivered;
        }
    }

    fn remove_from(&mut self, delta: &mut Delta) {
        delta.tokens.drain(..self.replayed.token_ids.min(delta.tokens.len()));
        remove_replayed(&mut delta.token_ids, &mut self.replayed.token_ids);
        remove_replayed(&mut delta.bytes, &mut self.replayed.bytes);
        let end = delta.text.floor_char_boundary(self.replayed.text);
        delta.text.drain(..end);
        self.replayed.text -= end;
    }
}

fn remove_replayed<T>(items: &mut Vec<T>, replayed: &mut usize) {
    let count = items.len().min(*replayed);
    items.drain(..count);
    *replayed -= count;
}
