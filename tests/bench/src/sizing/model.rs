//! The measured models: given ones, and ones with random weights.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use super::shape::{Shape, Tensor, VOCABULARY};
use crate::numbers::Numbers;

const TEMPLATE: &str = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}";

/// One model.
#[derive(Debug)]
pub(super) enum Model {
    Given(PathBuf),
    Made(Shape),
}

impl Model {
    pub(super) fn at(path: &Path) -> Result<Self> {
        let path = path.canonicalize().with_context(|| format!("cannot find {}", path.display()))?;
        Ok(Self::Given(path))
    }

    pub(super) fn of(shape: Shape) -> Self {
        Self::Made(shape)
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::Given(path) => path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            Self::Made(shape) => format!("random weights, {:.2} billion", shape.parameters() as f64 / 1e9),
        }
    }

    /// Returns the model's path, after writing it into `folder` if it is a made one.
    pub(super) fn write(&self, folder: &Path) -> Result<PathBuf> {
        match self {
            Self::Given(path) => Ok(path.clone()),
            Self::Made(shape) => {
                let folder = folder.join("made");
                fs::create_dir(&folder)?;
                fs::write(folder.join("config.json"), shape.config().to_string())?;
                fs::write(folder.join("tokenizer.json"), tokenizer().to_string())?;
                let config = json!({"chat_template": TEMPLATE, "eos_token": "<end>"});
                fs::write(folder.join("tokenizer_config.json"), config.to_string())?;
                write_weights(&shape.tensors(), &folder.join("model.safetensors"))?;
                Ok(folder)
            }
        }
    }
}

/// Returns the bytes of a file, or of a folder's files.
pub(super) fn bytes(path: &Path) -> Result<u64> {
    if path.is_file() {
        return Ok(path.metadata()?.len());
    }
    fs::read_dir(path)?.map(|entry| Ok(entry?.metadata()?.len())).sum()
}

/// Returns a tokenizer of bytes, with tokens that no text contains up to the size of a vocabulary.
fn tokenizer() -> Value {
    let spelled = ('!'..='~').chain(['Ġ', 'Ċ']).map(String::from);
    let others = (0..).map(|number| format!("unused{number}"));
    let tokens = ["<begin>", "<end>"].map(str::to_owned).into_iter().chain(spelled).chain(others);
    let vocabulary: Map<String, Value> =
        tokens.take(VOCABULARY).zip(0..).map(|(token, id)| (token, json!(id))).collect();
    let control = |(id, content)| {
        json!({"id": id, "content": content, "special": true, "single_word": false, "lstrip": false, "rstrip": false,
               "normalized": false})
    };
    let added: Vec<Value> = ["<begin>", "<end>"].into_iter().enumerate().map(control).collect();
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    json!({
        "version": "1.0",
        "added_tokens": added,
        "pre_tokenizer": bytes,
        "decoder": bytes,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    })
}

/// Writes tensors of bfloat16: vectors of ones, and small random numbers.
fn write_weights(tensors: &[Tensor], file: &Path) -> Result<()> {
    let mut end = 0;
    let mut header = Map::new();
    for (name, rows, columns) in tensors {
        let (begin, shape) = (end, if *rows == 1 { json!([columns]) } else { json!([rows, columns]) });
        end += rows * columns * 2;
        header.insert(name.clone(), json!({"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}));
    }
    let (header, mut numbers) = (Value::from(header).to_string(), Numbers::new());
    let mut out = BufWriter::with_capacity(1 << 20, File::create(file)?);
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(header.as_bytes())?;
    for (_, rows, columns) in tensors {
        if *rows == 1 {
            write_all(&mut out, *columns, || ONES)?;
        } else {
            write_all(&mut out, rows * columns, || small(numbers.next()))?;
        }
    }
    Ok(out.flush()?)
}

/// Four ones.
const ONES: u64 = 0x3F80_3F80_3F80_3F80;

/// Returns four numbers of bfloat16 with absolute values from 0.008 to 0.03, and random signs.
fn small(random: u64) -> u64 {
    (random & 0x80FF_80FF_80FF_80FF) | 0x3C00_3C00_3C00_3C00
}

/// Writes `count` numbers of 16 bits, four at a time.
fn write_all(out: &mut impl Write, count: usize, mut four: impl FnMut() -> u64) -> Result<()> {
    for _ in 0..count / 4 {
        out.write_all(&four().to_le_bytes())?;
    }
    Ok(())
}
