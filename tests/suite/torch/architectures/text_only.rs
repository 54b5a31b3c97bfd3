//! gen-svc without libtorch: it computes the models that the CPU's kernels compute, and refuses the others.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::json;
use tandem_tests::generate_command::{answers, generate_by};
use tandem_tests::gguf_pair::{MMPROJ, MODEL, Pair};
use tandem_tests::{binary, default_model, error_texts, text_only_program};
use tandem_tests_full::image_checkpoint::Goldens;

use super::CASES;

/// A request for a token.
const PROMPT: &str = r#"{"token_ids": [1, 2, 3], "max_new_tokens": 1}"#;

/// Returns the greedy tokens after each prompt.
fn generate(model: &Path, prompts: &[Vec<u32>]) -> Output {
    let line = |ids: &Vec<u32>| {
        format!("{}\n", json!({"token_ids": ids, "max_new_tokens": 64, "temperature": 0, "ignore_eos": true}))
    };
    let lines: String = prompts.iter().map(line).collect();
    generate_by(&text_only_program(), model, &["--jsonl"], lines.as_bytes())
}

fn refusal(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8_lossy(&output.stderr).lines().last().expect("a line").to_owned()
}

#[test]
fn program_without_libtorch_matches_transformers_or_refuses_the_architecture() {
    let mut refused = Vec::new();
    for case in CASES.iter() {
        let folder = case.whole(&case.config, "F32");
        let output = generate(folder.path(), &case.prompts);
        if case.name.starts_with("gemma4") {
            refused.push(refusal(&output));
            continue;
        }
        let ids: Vec<_> = answers(&output).into_iter().map(|answer| answer["token_ids"].clone()).collect();
        assert_eq!(json!(ids), json!(case.greedy), "{}", case.name);
    }
    error_texts::check_rows("load/without-libtorch", refused);
}

/// The language model of a model with images needs no tower.
#[test]
fn program_without_libtorch_answers_text_of_a_model_with_images_and_refuses_images() {
    let goldens = Goldens::read();
    for case in goldens.cases.iter().filter(|case| ["qwen3_vl", "qwen3_5"].contains(&&*case.name)) {
        let folder = goldens.folder(case);
        let prompt = json!({"token_ids": [100, 101, 102], "max_new_tokens": 16, "temperature": 0, "ignore_eos": true});
        let conversation = case.conversations.iter().find(|asked| asked.images().count() > 0).expect("a conversation");
        let image = json!({"hf_messages": goldens.messages(conversation), "max_new_tokens": 1});
        let lines = format!("{prompt}\n{image}\n");
        let by = |program: &Path| answers(&generate_by(program, folder.path(), &["--jsonl"], lines.as_bytes()));
        let (whole, text_only) = (by(&binary("gen-svc")), by(&text_only_program()));
        assert_eq!(text_only[0]["token_ids"], whole[0]["token_ids"], "{}", case.name);
        assert!(whole[1]["error"].is_null(), "{}", whole[1]);
        assert_eq!(text_only[1]["error"]["reason"], "IMAGES_NOT_SUPPORTED");
    }
}

#[test]
fn program_without_libtorch_refuses_devices_and_names_the_remedy() {
    let refused = [&["--device", "cuda:0"], &["--device", "cpu-torch"], &["--dtype", "f16"]].map(|options| {
        let mut command = Command::new(text_only_program());
        let command = command.args(["serve", "--check", "--listen", "127.0.0.1:0", "--model"]).arg(default_model());
        refusal(&command.args(options).output().expect("gen-svc runs"))
    });
    error_texts::check_rows("serve/without-libtorch", refused);
}

/// Returns the message with which the program refuses to serve a model.
fn refuses(model: &Path, options: &[&str]) -> String {
    let mut command = Command::new(text_only_program());
    command.args(["serve", "--check", "--listen", "127.0.0.1:0", "--model"]).arg(model).args(options);
    refusal(&command.output().expect("gen-svc runs"))
}

#[test]
fn program_without_libtorch_refuses_a_tower_in_an_existing_file() {
    let goldens = Goldens::read();
    let case = goldens.cases.iter().find(|case| case.name == "qwen3_vl").expect("a case");
    let files = Pair::of(goldens.folder(case).path()).folder();
    let (model, tower) = (files.path().join(MODEL), files.path().join(MMPROJ));
    let refused = refuses(&model, &["--mmproj", tower.to_str().expect("UTF-8")]);
    assert!(refused.starts_with("gen-svc: DEVICE_UNSUPPORTED: "), "{refused}");
    error_texts::check("mmproj/without-libtorch", refused);
}

/// The kernels compute heads of whole groups of numbers.
#[test]
fn program_without_libtorch_refuses_a_head_size_that_the_kernels_do_not_compute() {
    const SIZE: usize = 6;
    let mut case = CASES.iter().find(|case| case.name == "llama").expect("a case").clone();
    let size = case.config["head_dim"].as_u64().expect("a size") as usize;
    case.config["head_dim"] = json!(SIZE);
    for (name, shape) in &mut case.tensors {
        let dimension = if name.contains("o_proj") { 1 } else { 0 };
        if name.contains("self_attn") {
            shape[dimension] = shape[dimension] / size * SIZE;
        }
    }
    let folder = case.whole(&case.config, "F32");
    let refused = refuses(folder.path(), &[]);
    assert!(refused.starts_with("gen-svc: DEVICE_UNSUPPORTED: "), "{refused}");
    error_texts::check("load/head-size-without-libtorch", refused);
    let whole = answers(&generate_by(&binary("gen-svc"), folder.path(), &["--jsonl"], PROMPT.as_bytes()));
    assert!(whole[0]["error"].is_null(), "libtorch computes it: {}", whole[0]);
}

#[test]
fn program_without_libtorch_has_none() {
    let version = Command::new(text_only_program()).arg("--version").output().expect("gen-svc runs");
    assert!(String::from_utf8_lossy(&version.stdout).contains("libtorch: none"));
    let bytes = std::fs::read(text_only_program()).expect("the program");
    assert!(!bytes.windows(15).any(|text| text == b"libtorch_cpu.so"), "libtorch is linked");
}
