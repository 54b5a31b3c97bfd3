//! Files with towers that are refused when the model is loaded.

use std::path::Path;

use gen_svc::load;
use tandem_core::engine::{Config, DtypeChoice};
use tandem_tests::error_texts;
use tandem_tests::gguf_pair::{Entry, GgufModel, MMPROJ, MODEL, Pair};
use tandem_torch::Libtorch;

use super::{for_each, pairs, qwen3_5};

/// Loads a model. Returns the reason and the text of its error, with FOLDER for the folder.
fn refused(folder: &Path, change: impl FnOnce(&mut Config)) -> String {
    let mut config = Config { threads: 1, dtype: DtypeChoice::F32, ..Config::new(folder.join(MODEL)) };
    change(&mut config);
    let Err(error) = load::start(config, &Libtorch) else { panic!("{} is loaded", folder.display()) };
    format!("{}: {}", error.reason().name(), error.chain()).replace(&folder.display().to_string(), "FOLDER")
}

fn changed(pair: &Pair, change: impl FnOnce(&mut GgufModel)) -> String {
    let mut pair = pair.clone();
    change(&mut pair.tower);
    refused(pair.folder().path(), |_| {})
}

#[test]
fn settings_of_a_tower_that_are_not_supported_are_refused_by_their_key() {
    let pairs = pairs();
    let cases: [(&str, &str, Entry); 12] = [
        ("gemma3", "projector_type", Entry::Text("resampler".to_owned())),
        ("gemma3", "vision.feature_layer", Entry::I32s(vec![3])),
        ("gemma3", "has_audio_encoder", Entry::Bool(true)),
        ("gemma3", "has_vision_encoder", Entry::Bool(false)),
        ("gemma3", "use_silu", Entry::Bool(true)),
        ("gemma3", "vision.projector.scale_factor", Entry::U32(3)),
        ("gemma3", "vision.patch_size", Entry::U32(0)),
        ("gemma3", "vision.image_mean", Entry::F32(0.5)),
        ("gemma3", "vision.image_std", Entry::F32s(vec![1.0, 0.0, 1.0])),
        ("smolvlm", "vision.preproc_image_size", Entry::U32(1 << 20)),
        ("qwen2_5_vl", "vision.attention.layer_norm_epsilon", Entry::F32(1e-5)),
        ("qwen2_5_vl", "vision.window_size", Entry::U32(1)),
    ];
    let texts = cases.map(|(name, key, entry)| changed(&pairs[name], |tower| tower.set(&format!("clip.{key}"), entry)));
    error_texts::check_rows("mmproj/setting", texts);
}

/// The projector is that of Qwen3-VL, whose language model takes features of blocks.
#[test]
fn a_tower_of_qwen_3_5_with_features_of_blocks_is_refused() {
    let flags = Entry::Bools(vec![false, true]);
    let refused = changed(&qwen3_5().0, |tower| tower.set("clip.vision.is_deepstack_layers", flags));
    error_texts::check("mmproj/features", refused);
}

#[test]
fn tensors_of_a_tower_that_are_missing_misshapen_or_not_used_are_named() {
    let pairs = pairs();
    let missing = changed(&pairs["qwen2_5_vl"], |tower| {
        tower.tensors.remove("v.patch_embd.weight.1").expect("a tensor");
    });
    let misshapen = changed(&pairs["gemma3"], |tower| {
        tower.tensors.get_mut("mm.input_projection.weight").expect("a tensor").shape.reverse();
    });
    // Towers of other kinds have it, and llama.cpp computes with it.
    let unused = changed(&pairs["gemma3"], |tower| {
        let norm = tower.tensors["v.post_ln.weight"].clone();
        tower.tensors.insert("v.pre_ln.weight".to_owned(), norm);
    });
    error_texts::check_rows("mmproj/tensor", [missing, misshapen, unused]);
}

#[test]
fn a_named_file_must_be_the_tower_of_the_model() {
    let pairs = pairs();
    let folder = pairs["gemma3"].folder();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("smol.gguf"), pairs["smolvlm"].tower.bytes()).expect("the folder is writable");
    let mut narrow = pairs["gemma3"].tower.clone();
    narrow.set("clip.vision.projection_dim", Entry::U32(64));
    std::fs::write(path("narrow.gguf"), narrow.bytes()).expect("the folder is writable");
    std::fs::write(path("broken.gguf"), b"GGUF").expect("the folder is writable");
    let texts = ["smol.gguf", "narrow.gguf", MODEL, "broken.gguf", "absent.gguf"]
        .map(|name| refused(folder.path(), |config| config.mmproj = Some(path(name))));
    error_texts::check_rows("mmproj/named", texts);
}

#[test]
fn several_towers_of_a_model_and_broken_ones_are_refused() {
    let pair = &pairs()["gemma3"];
    let folder = pair.folder();
    let other = folder.path().join("tiny.MMPROJ-f16.gguf");
    std::fs::write(&other, pair.tower.bytes()).expect("the folder is writable");
    let of_folder = refused(folder.path(), |config| config.model = folder.path().to_owned());
    let several = [refused(folder.path(), |_| {}), of_folder];
    std::fs::write(&other, b"GGUF").expect("the folder is writable");
    error_texts::check_rows("mmproj/beside", several.into_iter().chain([refused(folder.path(), |_| {})]));
}

#[test]
fn a_folder_with_its_own_tower_takes_no_other() {
    for_each(|name, folder| {
        if name != "gemma3" {
            return;
        }
        let text = refused(folder, |config| {
            config.model = folder.to_owned();
            config.mmproj = Some(folder.join(MMPROJ));
        });
        error_texts::check("mmproj/folder", text);
    });
}
