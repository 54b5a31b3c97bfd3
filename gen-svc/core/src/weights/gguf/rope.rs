//! The scaling of rotary frequencies in a GGUF file, as llama.cpp applies it: each frequency is divided
//! by the factor of the header and by its divisor in a tensor.

use serde_json::{Value, json};
use tandem_model_files::gguf::{GgmlType, TensorInfo};

use super::architecture::Divisors;
use super::header::GgufHeader;
use crate::error::LoadError;
use crate::weights::quant;

/// The most frequencies of a head.
const MAX_FREQUENCIES: usize = 1 << 16;

const TYPE: &str = "rope.scaling.type";

/// Returns the scaling as `rope_scaling`. `None`: frequencies are not scaled.
pub(super) fn scaling(header: &GgufHeader, divisors: Divisors) -> Result<Option<Value>, LoadError> {
    let kind = header.find::<&str>(TYPE)?.unwrap_or("linear");
    if !["linear", "none", "longrope"].contains(&kind) {
        return Err(header.refused(TYPE, format!("{kind:?}")));
    }
    let factor = factor(header)?;
    let factor = if kind == "none" { 1.0 } else { factor };
    let attention = header.find::<f32>("rope.scaling.attn_factor")?.map_or(1.0, f64::from);
    let is_long = divisors == Divisors::ShortAndLong || (divisors == Divisors::OfScaling && kind == "longrope");
    if is_long && let Some([short, long]) = short_and_long(header)? {
        return Ok(Some(json!({
            "rope_type": "longrope",
            "short_factor": scaled(&short, factor),
            "long_factor": scaled(&long, factor),
            "attention_factor": attention,
        })));
    }
    let tensor = if divisors == Divisors::OfScaling && !is_long { values(header, "rope_freqs.weight")? } else { None };
    if tensor.is_none() && factor == 1.0 && attention == 1.0 {
        return Ok(None);
    }
    let divisors = tensor.unwrap_or(vec![1.0; frequencies(header)?]);
    let divisors = scaled(&divisors, factor);
    Ok(Some(json!({"rope_type": "gguf.divided", "divisors": divisors, "attention_factor": attention})))
}

/// Returns the factor of all frequencies, which older files have under another key. Zero means none.
fn factor(header: &GgufHeader) -> Result<f64, LoadError> {
    let older = header.find::<f32>("rope.scale_linear")?;
    let factor = header.find::<f32>("rope.scaling.factor")?.or(older).map_or(0.0, f64::from);
    Ok(if factor == 0.0 { 1.0 } else { factor })
}

fn scaled(divisors: &[f64], factor: f64) -> Vec<f64> {
    divisors.iter().map(|divisor| divisor * factor).collect()
}

/// Returns the number of frequencies of a head.
fn frequencies(header: &GgufHeader) -> Result<usize, LoadError> {
    let rotary_dim = match header.find::<u32>("rope.dimension_count")? {
        Some(rotary_dim) => rotary_dim,
        None => header.head_size()?,
    };
    Ok((rotary_dim as usize / 2).min(MAX_FREQUENCIES))
}

/// Returns the context length that separates the two sets of divisors.
///
/// # Errors
/// A value has the wrong type.
pub(super) fn original_context(header: &GgufHeader) -> Result<Option<u32>, LoadError> {
    match header.find("rope.scaling.original_context_length")? {
        Some(original) => Ok(Some(original)),
        None => header.find("context_length"),
    }
}

/// Returns both sets of divisors. A set alone is not read, and then refused.
fn short_and_long(header: &GgufHeader) -> Result<Option<[Vec<f64>; 2]>, LoadError> {
    const NAMES: [&str; 2] = ["rope_factors_short.weight", "rope_factors_long.weight"];
    if NAMES.iter().any(|name| header.file().tensor(name).is_none()) {
        return Ok(None);
    }
    let [short, long] = NAMES.map(|name| values(header, name));
    Ok(short?.zip(long?).map(|(short, long)| [short, long]))
}

/// Returns the values of a small f32 tensor, which are finite.
fn values(header: &GgufHeader, name: &str) -> Result<Option<Vec<f64>>, LoadError> {
    let is_small = |tensor: &TensorInfo<'_>| tensor.dtype == GgmlType::F32 && tensor.data.len() <= 4 * MAX_FREQUENCIES;
    if !header.file().tensor(name).as_ref().is_some_and(is_small) {
        return Ok(None);
    }
    let Some(tensor) = header.tensor(name) else { return Ok(None) };
    let data = tensor.data.read().map_err(|source| LoadError::TensorRead { name: name.to_owned(), source })?;
    let values = quant::dequantize(tensor.dtype, &data).unwrap_or_default();
    match values.iter().find(|value| !value.is_finite()) {
        Some(&found) => Err(LoadError::TensorNotFinite { name: name.to_owned(), found }),
        None => Ok(Some(values.into_iter().map(f64::from).collect())),
    }
}
