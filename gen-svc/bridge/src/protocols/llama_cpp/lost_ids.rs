//! The ids of a character of several tokens, found by its bytes.

use std::collections::HashMap;

use tandem_model_files::tokenizer::Tokenizer;

/// The most divisions of a character's bytes that are looked at.
const MAX_STEPS: usize = 10_000;

/// The tokens that begin or end inside a character, by their bytes.
#[derive(Debug)]
pub(super) struct LostIds {
    tokens: HashMap<Vec<u8>, Vec<u32>>,
    longest: usize,
}

impl LostIds {
    /// Collects the tokens that are no whole characters. Only these can be lost.
    pub(super) fn new(tokenizer: &Tokenizer) -> Self {
        let mut tokens: HashMap<_, Vec<_>> = HashMap::new();
        for id in 0..u32::try_from(tokenizer.vocab_size()).unwrap_or(u32::MAX) {
            let bytes = tokenizer.token_bytes(id).filter(|bytes| std::str::from_utf8(bytes).is_err());
            if let Some(bytes) = bytes {
                tokens.entry(bytes.to_vec()).or_default().push(id);
            }
        }
        let longest = tokens.keys().map(Vec::len).max().unwrap_or(0);
        Self { tokens, longest }
    }

    /// Returns the `missing` ids before `known` ones, whose texts together have these bytes. None: there is no such
    /// division into tokens, or more than one.
    pub(super) fn find(&self, bytes: &[u8], missing: usize, known: &[u32], tokenizer: &Tokenizer) -> Option<Vec<u32>> {
        let known: Vec<u8> = known.iter().filter_map(|&id| tokenizer.token_bytes(id)).flatten().copied().collect();
        let bytes = bytes.strip_suffix(known.as_slice())?;
        let (mut found, mut steps) = (Vec::new(), MAX_STEPS);
        self.divide(bytes, bytes, missing, &mut Vec::new(), &mut found, &mut steps);
        if steps > 0 && found.len() == 1 { found.pop() } else { None }
    }

    /// Collects the divisions of `rest`, the end of `all`, into `missing` tokens. None of them ends at the end of a
    /// character, where the server would have sent it.
    fn divide(
        &self,
        all: &[u8],
        rest: &[u8],
        missing: usize,
        ids: &mut Vec<u32>,
        found: &mut Vec<Vec<u32>>,
        steps: &mut usize,
    ) {
        if missing == 0 {
            found.extend(rest.is_empty().then(|| ids.clone()));
            return;
        }
        for length in 1..=rest.len().min(self.longest) {
            let (token, rest) = rest.split_at(length);
            let is_whole = std::str::from_utf8(&all[..all.len() - rest.len()]).is_ok();
            if is_whole || *steps == 0 {
                continue;
            }
            *steps -= 1;
            for &id in self.tokens.get(token).into_iter().flatten() {
                ids.push(id);
                self.divide(all, rest, missing - 1, ids, found, steps);
                ids.pop();
            }
        }
    }
}
