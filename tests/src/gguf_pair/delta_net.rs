//! The tensors of a gated DeltaNet in a GGUF file. The converter reorders its value heads: those of the first key head
//! are no longer adjacent.

use serde_json::Value;

use super::gguf_model::Tensor;

fn size(config: &Value, setting: &str) -> usize {
    config[setting].as_u64().unwrap_or_else(|| panic!("{setting} is a size")) as usize
}

/// Converts a tensor below `layers.N`. The value is `text_config`.
pub(super) fn convert(config: &Value, name: &str, tensor: &Tensor) -> Option<(String, Tensor)> {
    let part = name.strip_prefix("linear_attn.")?;
    let columns: usize = tensor.shape.iter().skip(1).product();
    let (key_heads, heads) = (size(config, "linear_num_key_heads"), size(config, "linear_num_value_heads"));
    let (keys, value) = (2 * key_heads * size(config, "linear_key_head_dim"), size(config, "linear_value_head_dim"));
    let tiled = |values: &[f32], size: usize| -> Vec<f32> {
        let head = |stored: usize| stored % key_heads * (heads / key_heads) + stored / key_heads;
        (0..heads).flat_map(|stored| &values[head(stored) * size..][..size]).copied().collect()
    };
    let of_values = |values: &[f32]| tiled(values, value * columns);
    let after_keys = || {
        let (keys, values) = tensor.values.split_at(keys * columns);
        [keys, &of_values(values)].concat()
    };
    let Tensor { shape, values } = tensor;
    let (stored, shape, values) = match part {
        "in_proj_qkv.weight" => ("attn_qkv.weight", shape.clone(), after_keys()),
        "in_proj_z.weight" => ("attn_gate.weight", shape.clone(), of_values(values)),
        "in_proj_b.weight" => ("ssm_beta.weight", shape.clone(), tiled(values, columns)),
        "in_proj_a.weight" => ("ssm_alpha.weight", shape.clone(), tiled(values, columns)),
        "conv1d.weight" => ("ssm_conv1d.weight", vec![shape[0], columns], after_keys()),
        "A_log" => ("ssm_a", shape.clone(), tiled(&values.iter().map(|log| -log.exp()).collect::<Vec<_>>(), 1)),
        "dt_bias" => ("ssm_dt.bias", shape.clone(), tiled(values, 1)),
        "norm.weight" => ("ssm_norm.weight", shape.clone(), values.clone()),
        "out_proj.weight" => {
            let rows = values.chunks_exact(columns).flat_map(|row| tiled(row, value));
            ("ssm_out.weight", shape.clone(), rows.collect())
        }
        other => panic!("the part {other}"),
    };
    Some((stored.to_owned(), Tensor { shape, values }))
}
