//! A model with a SentencePiece vocabulary in its GGUF header.

use std::path::Path;

use gen_svc::load::{self, WithoutLibrary};
use tandem_core::answer::Event;
use tandem_core::engine::Config;
use tandem_core::request::{GenerateRequest, Input, Returns, SamplingOptions, StopOptions};
use tandem_tests::gguf_file::File;
use tandem_tests::sentencepiece::{GOLDENS, Vocabulary};
use tandem_tests::tokenizers::{built, joined};

/// Returns a Llama with E 48, H 4, K 2, D 16, F 80 and one layer, over the vocabulary.
fn model(vocabulary: &Vocabulary) -> File {
    let sizes = [
        ("embedding_length", 48),
        ("feed_forward_length", 80),
        ("block_count", 1),
        ("attention.head_count", 4),
        ("attention.head_count_kv", 2),
        ("attention.key_length", 16),
        ("attention.value_length", 16),
        ("rope.dimension_count", 16),
        ("context_length", 512),
    ];
    let file = sizes.iter().fold(vocabulary.file(), |file, (key, size)| file.u32(&format!("llama.{key}"), *size));
    let file = file.f32("llama.attention.layer_norm_rms_epsilon", 1e-5);
    let norms = ["output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"];
    let file = norms.iter().fold(file, |file, name| file.weights(&format!("{name}.weight"), &[48], |_| 1.0));
    let size = vocabulary.tokens.len() as u64;
    let matrices = [
        ("token_embd", [48, size]),
        ("output", [48, size]),
        ("blk.0.attn_q", [48, 64]),
        ("blk.0.attn_k", [48, 32]),
        ("blk.0.attn_v", [48, 32]),
        ("blk.0.attn_output", [64, 48]),
        ("blk.0.ffn_gate", [48, 80]),
        ("blk.0.ffn_up", [48, 80]),
        ("blk.0.ffn_down", [80, 48]),
    ];
    let number = |place: u64| (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f32 / (1 << 25) as f32 - 0.25;
    (1..).zip(matrices).fold(file, |file, (seed, (name, dims))| {
        file.weights(&format!("{name}.weight"), &dims, |place| number(place + seed * 1_000_003))
    })
}

/// Returns the ids and the bytes of 48 tokens after the prompt, and the prompt's number of tokens.
fn generate(path: &Path, prompt: &str) -> (Vec<u32>, Vec<u8>, usize) {
    let config = Config { threads: 1, kv_memory: Some(8 << 20), ..Config::new(path.to_owned()) };
    let engine = load::start(config, &WithoutLibrary).expect("the model loads").0;
    let request = GenerateRequest {
        sampling: SamplingOptions { temperature: Some(1.0), seed: Some(5), ..SamplingOptions::default() },
        stop: StopOptions { max_new_tokens: Some(48), ignore_eos: true, ..StopOptions::default() },
        returns: Returns { token_ids: true, bytes: true, ..Returns::default() },
        ..GenerateRequest::new(Input::Text(prompt.to_owned()))
    };
    let mut events = engine.submit(request.prepare(engine.model()).expect("a valid request"), None).expect("room");
    let (mut ids, mut bytes, mut length) = (Vec::new(), Vec::new(), 0);
    loop {
        let delta = match events.blocking_recv().expect("an end") {
            Event::Accepted(accepted) => {
                length = accepted.prompt_tokens;
                continue;
            }
            Event::Delta(delta) => delta,
            Event::Finished(end) => end.last,
            Event::Summary(_) => return (ids, bytes, length),
            other => panic!("{other:?}"),
        };
        ids.extend(delta.token_ids);
        bytes.extend(delta.segments.into_iter().flat_map(|segment| segment.bytes));
    }
}

#[test]
fn sentencepiece_model_generates_the_bytes_of_its_tokens() {
    for vocabulary in GOLDENS.vocabularies.iter().filter(|vocabulary| vocabulary.architecture == "llama") {
        let (path, tokenizer) = (model(vocabulary).write(), built(&vocabulary.file()));
        let prompt = "<s>the boats\n";
        let (ids, bytes, length) = generate(&path, prompt);
        std::fs::remove_file(path).expect("the file is there");
        assert_eq!((ids.len(), length), (48, tokenizer.encode(prompt, false).expect("text").len()));
        let shown: Vec<u32> = ids.into_iter().filter(|&id| !tokenizer.is_special(id)).collect();
        assert_eq!(bytes, joined(&tokenizer, &shown), "{}", vocabulary.name);
    }
}
