//! Weights that `config.json` says are quantized, in formats of other engines.

use serde_json::{Value, json};
use tandem_model_files::artifacts::safetensors::SafetensorsError;
use tandem_model_files::artifacts::{Artifacts, read_object};
use tandem_model_files::excerpt;

use crate::error::LoadError;
use crate::weights::ModelFile;

/// The keys of the format's settings, and the method of settings without a name: of MLX, and in newer and in
/// older files. Folders of MLX may have the first two.
const KEYS: [(&str, &str); 3] = [
    ("quantization", "MLX"),
    ("quantization_config", "an unknown method"),
    ("compression_config", "an unknown method"),
];

/// The settings of GPTQ in older folders, whose config has none.
const GPTQ_SETTINGS: &str = "quantize_config.json";

/// The methods whose names are abbreviations.
const ABBREVIATIONS: [&str; 7] = ["aqlm", "awq", "eetq", "fp8", "gptq", "hqq", "mxfp4"];

/// Opens the safetensors files of a folder.
///
/// # Errors
/// The folder has no weights, or a header is malformed.
pub(super) fn open(artifacts: &Artifacts) -> Result<ModelFile, LoadError> {
    let config = with_gptq(artifacts);
    ModelFile::from_folder(&artifacts.path, config.clone()).map_err(|error| explained(error, &config))
}

/// Returns the folder's config, with the settings of a file of GPTQ beside it.
fn with_gptq(artifacts: &Artifacts) -> Value {
    let mut config = artifacts.config.clone();
    if settings(&config).is_none()
        && let Ok(Some(gptq)) = read_object(&artifacts.path.join(GPTQ_SETTINGS))
    {
        config["quantization_config"] = json!({"quant_method": "gptq", "bits": gptq.get("bits")});
    }
    config
}

/// Returns the error of a tensor. If the config says that the weights are quantized, this is the reason why a
/// tensor is missing, not used, or has another shape or type. A model whose tensors are as expected is loaded, whatever its
/// config says.
pub(super) fn explained(error: LoadError, config: &Value) -> LoadError {
    let is_of_format = match &error {
        LoadError::TensorMissing { .. }
        | LoadError::TensorShape { .. }
        | LoadError::TensorType { .. }
        | LoadError::TensorUnused { .. } => true,
        LoadError::Safetensors(error) => {
            matches!(**error, SafetensorsError::None { .. } | SafetensorsError::Other { .. })
        }
        _ => false,
    };
    match settings(config).filter(|_| is_of_format) {
        Some((default, settings)) => LoadError::Quantized {
            format: excerpt(format(settings, default)).to_string(),
            remedy: remedy(settings),
            problem: Box::new(error),
        },
        None => error,
    }
}

/// Returns the settings of the format, and the method of settings without a name.
fn settings(config: &Value) -> Option<(&'static str, &Value)> {
    let sections = [config, &config["text_config"]];
    let mut found = sections.iter().flat_map(|section| KEYS.map(|(key, method)| (method, &section[key])));
    found.find(|(_, settings)| settings.is_object())
}

/// Returns the method and the bits of a weight, such as `AWQ (4 bits)`.
fn format(settings: &Value, default: &str) -> String {
    let method = settings["quant_method"].as_str().unwrap_or(default);
    let method = if ABBREVIATIONS.contains(&method) { method.to_uppercase() } else { method.to_owned() };
    match bits(settings) {
        Some(bits) => format!("{method} ({bits} bits)"),
        None => method,
    }
}

/// Returns the value of `--quantize` with about the same size.
fn remedy(settings: &Value) -> &'static str {
    if bits(settings).is_some_and(|bits| bits > 4) { "int8" } else { "int4" }
}

/// Returns the bits of a weight.
fn bits(settings: &Value) -> Option<u64> {
    let groups = settings["config_groups"].as_object().into_iter().flat_map(|groups| groups.values());
    let of_groups = || groups.filter_map(|group| group["weights"]["num_bits"].as_u64()).max();
    let is_set = |key: &str| settings[key] == true;
    let of_method = || match settings["quant_method"].as_str() {
        _ if is_set("load_in_4bit") => Some(4),
        _ if is_set("load_in_8bit") => Some(8),
        Some("mxfp4") => Some(4),
        Some("fp8" | "fbgemm_fp8") => Some(8),
        _ => None,
    };
    settings["bits"].as_u64().or_else(of_groups).or_else(of_method)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::explained;
    use crate::error::LoadError;

    fn chain(config: Value) -> String {
        explained(LoadError::TensorMissing { name: "a".to_owned() }, &config).chain()
    }

    /// The settings are those of published models.
    #[test]
    fn format_and_remedy_follow_from_the_settings() {
        let cases = [
            (json!({"quant_method": "awq", "bits": 4, "version": "gemm"}), "AWQ (4 bits)", "int4"),
            (json!({"quant_method": "gptq", "bits": 8}), "GPTQ (8 bits)", "int8"),
            (json!({"quant_method": "fp8", "fmt": "e4m3"}), "FP8 (8 bits)", "int8"),
            (json!({"quant_method": "mxfp4"}), "MXFP4 (4 bits)", "int4"),
            (
                json!({"quant_method": "bitsandbytes", "load_in_4bit": true, "load_in_8bit": false}),
                "bitsandbytes (4 bits)",
                "int4",
            ),
            (
                json!({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 8}}}}),
                "compressed-tensors (8 bits)",
                "int8",
            ),
            (json!({"quant_method": "torchao"}), "torchao", "int4"),
            (json!({}), "an unknown method", "int4"),
        ];
        for (settings, format, quantize) in cases {
            let expected = format!(
                "the weights are quantized with {format}, which is not supported: take the unquantized folder with \
                 --quantize {quantize}, or a GGUF file: tensor a is missing"
            );
            assert_eq!(chain(json!({"quantization_config": settings})), expected);
            assert_eq!(chain(json!({"text_config": {"quantization_config": settings}})), expected);
        }
    }

    #[test]
    fn settings_of_mlx_have_no_name() {
        let settings = json!({"group_size": 64, "bits": 4});
        let config = json!({"quantization": settings, "quantization_config": settings});
        assert!(chain(config).starts_with("the weights are quantized with MLX (4 bits), which"));
    }

    #[test]
    fn error_of_a_model_that_is_not_quantized_stays() {
        assert_eq!(chain(json!({"quantization_config": null})), "tensor a is missing");
        let cancelled = explained(LoadError::Cancelled, &json!({"quantization_config": {"quant_method": "awq"}}));
        assert!(matches!(cancelled, LoadError::Cancelled));
    }
}
