//! Reads arbitrary bytes as a GGUF file: its header, the model's artifacts, the offsets of its
//! tensors, its tokenizer.

#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tandem_model_files::artifacts::Artifacts;

/// The path of the input file. The reader opens files only.
static FILE: LazyLock<PathBuf> =
    LazyLock::new(|| std::env::temp_dir().join(format!("tandem-fuzz-{}.gguf", std::process::id())));

fuzz_target!(|bytes: &[u8]| {
    // A file must not be changed in place.
    let _ = std::fs::remove_file(&*FILE);
    std::fs::write(&*FILE, bytes).expect("a temporary file");
    let Ok(artifacts) = Artifacts::load(&FILE) else { return };
    if let Some(gguf) = artifacts.gguf() {
        let stored: usize = gguf.tensors().map(|tensor| tensor.data.len()).sum();
        let named = gguf.tensors().all(|tensor| gguf.tensor(tensor.name).is_some());
        assert!(named && stored <= bytes.len().saturating_mul(gguf.tensors().count()));
    }
    let Ok(tokenizer) = artifacts.tokenizer() else { return };
    if let Ok(ids) = tokenizer.encode("Hi <|im_start|> žluť 12\n", true) {
        ids.iter().for_each(|&id| assert!(tokenizer.token_bytes(id).is_some()));
    }
});
