//! Reads arbitrary bytes as a safetensors file.

#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tandem_model_files::artifacts::safetensors::Safetensors;

static FILE: LazyLock<PathBuf> =
    LazyLock::new(|| std::env::temp_dir().join(format!("tandem-fuzz-{}.safetensors", std::process::id())));

fuzz_target!(|bytes: &[u8]| {
    let _ = std::fs::remove_file(&*FILE);
    std::fs::write(&*FILE, bytes).expect("a temporary file");
    let Ok(file) = Safetensors::open(&FILE) else { return };
    for name in file.names() {
        let tensor = file.tensor(name).expect("it has that name");
        let data = tensor.data.read().expect("inside the file");
        let _ = (tensor.dtype.len(), tensor.shape.len(), data.into_iter().max());
    }
});
