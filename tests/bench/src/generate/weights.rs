//! Bytes of weights that are read per token.

use std::path::Path;

use anyhow::Result;
use tandem_model_files::gguf::{Gguf, TensorInfo};

/// A system's storage of matrices.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Storage {
    /// The format of the file.
    File,
    /// A number of bits per weight.
    Bits(f64),
    /// Bits per weight of the layers, and of the output head.
    BitsAndHead(f64, f64),
}

/// Returns the bytes of the matrices that are read per token.
pub(super) fn read_per_token(model: &Path, storage: Storage) -> Result<u64> {
    let gguf = Gguf::open(model)?;
    let is_tied = gguf.tensor("output.weight").is_none();
    let share = experts(&gguf)?;
    let bytes = |tensor: &TensorInfo<'_>| {
        let numbers = tensor.dims.iter().product::<usize>() as f64;
        let is_head = matches!(tensor.name, "output.weight" | "token_embd.weight");
        let bytes = match storage {
            Storage::File => tensor.data.len() as f64,
            Storage::Bits(bits) => numbers * bits / 8.0,
            Storage::BitsAndHead(layers, head) => numbers * if is_head { head } else { layers } / 8.0,
        };
        bytes * if tensor.dims.len() == 3 { share } else { 1.0 }
    };
    let is_read = |tensor: &TensorInfo<'_>| tensor.dims.len() > 1 && (is_tied || tensor.name != "token_embd.weight");
    Ok(gguf.tensors().filter(is_read).map(|tensor| bytes(&tensor)).sum::<f64>() as u64)
}

/// Returns the share of a layer's experts that a token uses.
fn experts(gguf: &Gguf) -> Result<f64> {
    let architecture: &str = gguf.get("general.architecture")?;
    let count = |name: &str| gguf.find::<u32>(&format!("{architecture}.{name}"));
    Ok(match (count("expert_used_count")?, count("expert_count")?) {
        (Some(used), Some(all)) if all > 0 => f64::from(used) / f64::from(all),
        _ => 1.0,
    })
}
