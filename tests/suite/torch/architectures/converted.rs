//! The tensors of a gated DeltaNet as llama.cpp's converter writes them.

/// The sizes of a DeltaNet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heads {
    pub(super) key_heads: usize,
    pub(super) value_heads: usize,
    pub(super) key_size: usize,
    pub(super) value_size: usize,
    /// True if the converter reorders value heads: those of the first key head are no longer adjacent.
    pub(super) is_tiled: bool,
}

/// A tensor: its name, its shape with the outermost dimension first, and its numbers.
pub(super) type Tensor = (&'static str, Vec<usize>, Vec<f32>);

impl Heads {
    /// Returns the tensors of the part `part`, which is below `linear_attn`.
    pub(super) fn converted(&self, part: &str, shape: &[usize], values: Vec<f32>) -> Vec<Tensor> {
        let keys = 2 * self.key_heads * self.key_size;
        let columns: usize = shape.iter().skip(1).product();
        let of_values = |values: &[f32]| self.tiled(values, self.value_size * columns);
        let one = |name, shape: &[usize], values| vec![(name, shape.to_vec(), values)];
        let after_keys = |values: &[f32]| [&values[..keys * columns], &of_values(&values[keys * columns..])].concat();
        match part {
            "in_proj_qkv.weight" => one("attn_qkv.weight", shape, after_keys(&values)),
            "in_proj_z.weight" => one("attn_gate.weight", shape, of_values(&values)),
            "in_proj_b.weight" => one("ssm_beta.weight", shape, self.tiled(&values, columns)),
            "in_proj_a.weight" => one("ssm_alpha.weight", shape, self.tiled(&values, columns)),
            "in_proj_qkvz.weight" => self.without_groups(&values, columns),
            "in_proj_ba.weight" => one("ssm_ba.weight", shape, values),
            "conv1d.weight" => one("ssm_conv1d.weight", &[shape[0], columns], after_keys(&values)),
            "A_log" => one("ssm_a", shape, self.tiled(&values.iter().map(|log| -log.exp()).collect::<Vec<_>>(), 1)),
            "dt_bias" => one("ssm_dt.bias", shape, self.tiled(&values, 1)),
            "norm.weight" => one("ssm_norm.weight", shape, values),
            "out_proj.weight" => {
                let rows = values.chunks_exact(columns).flat_map(|row| self.tiled(row, self.value_size)).collect();
                one("ssm_out.weight", shape, rows)
            }
            other => panic!("the part {other}"),
        }
    }

    /// Returns the numbers of value heads in the order of the file. A head has `size` numbers.
    fn tiled(&self, values: &[f32], size: usize) -> Vec<f32> {
        if !self.is_tiled {
            return values.to_vec();
        }
        let per_key_head = self.value_heads / self.key_heads;
        let head = |stored: usize| stored % self.key_heads * per_key_head + stored / self.key_heads;
        (0..self.value_heads).flat_map(|stored| &values[head(stored) * size..][..size]).copied().collect()
    }

    /// Divides the rows of q, k, v and z, of which each key head has a group, into those of q, k and v, and of z.
    fn without_groups(&self, values: &[f32], columns: usize) -> Vec<Tensor> {
        let of_values = self.value_heads / self.key_heads * self.value_size;
        let sizes = [self.key_size, self.key_size, of_values, of_values];
        let part = |i: usize| -> Vec<f32> {
            let (start, group) = (sizes[..i].iter().sum::<usize>(), sizes.iter().sum::<usize>());
            let groups = values.chunks_exact(group * columns);
            groups.flat_map(|group| &group[start * columns..][..sizes[i] * columns]).copied().collect()
        };
        let tensor = |name, values: Vec<f32>| (name, vec![values.len() / columns, columns], values);
        vec![tensor("attn_qkv.weight", [part(0), part(1), part(2)].concat()), tensor("attn_gate.weight", part(3))]
    }
}
