//! Queries, keys and values in three tensors, in an architecture that has them in one.

use super::decoder::{Decoder, Matrix};
use crate::weights::ModelFile;

/// The end of the name of the module that has all of them, and their own.
const JOINED: &str = "qkv_proj";
const PARTS: [&str; 3] = ["q_proj", "k_proj", "v_proj"];

/// Divides the matrix of each layer of which the file has the parts alone. As in llama.cpp, each layer is decided for
/// itself.
pub(super) fn divide(decoder: &mut Decoder, file: &ModelFile) {
    for attention in decoder.attentions_mut() {
        let [whole] = &attention.qkv[..] else { continue };
        let Some(path) = whole.name.strip_suffix(JOINED) else { continue };
        let has = |module: &str| file.has(&format!("{path}{module}.weight"));
        if has(JOINED) || !PARTS.into_iter().all(has) {
            continue;
        }
        let (queries, pairs) = (attention.heads * attention.head_size, attention.kv_heads * attention.head_size);
        let matrix = |(part, rows)| Matrix::new(format!("{path}{part}"), rows, whole.columns);
        attention.qkv = PARTS.into_iter().zip([queries, pairs, pairs]).map(matrix).collect();
    }
}
