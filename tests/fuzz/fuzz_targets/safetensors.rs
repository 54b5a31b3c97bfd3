//! Reads arbitrary bytes as a safetensors file.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tandem_model_files::artifacts::safetensors::Header;

fuzz_target!(|bytes: &[u8]| {
    let Ok(header) = Header::read(bytes) else { return };
    for name in header.names() {
        let tensor = header.tensor(bytes, name).expect("it has that name");
        let _ = (tensor.dtype.len(), tensor.shape.len(), tensor.data.iter().copied().max());
    }
});
