//! Tokens that end a turn or a text, for models whose files name only one of them.

use super::Vocabulary;

/// What models end with, by a special token that only tokenizers of their families have. A tokenizer config names one eos token; which
/// others the makers end generation at stands in their generation configs, which a GGUF file and many folders lack.
const FAMILIES: &[(&str, &[&str])] = &[
    // ChatML: Qwen, SmolLM2, Yi, InternLM.
    ("<|im_start|>", &["<|im_end|>", "<|endoftext|>"]),
    // Kimi.
    ("<|im_middle|>", &["<|im_end|>", "[EOS]"]),
    // Llama 3 and 4.
    ("<|start_header_id|>", &["<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"]),
    ("<|header_start|>", &["<|eot|>", "<|eom|>", "<|end_of_text|>"]),
    // Gemma to 3, and 4.
    ("<start_of_turn>", &["<end_of_turn>", "<eos>"]),
    ("<|turn>", &["<turn|>", "<eos>"]),
    // DeepSeek.
    ("<｜Assistant｜>", &["<｜end▁of▁sentence｜>"]),
    // Mistral and Llama 2.
    ("[INST]", &["</s>"]),
    // Command R.
    ("<|START_OF_TURN_TOKEN|>", &["<|END_OF_TURN_TOKEN|>"]),
    // Granite.
    ("<|start_of_role|>", &["<|end_of_text|>"]),
    // GLM-4, which ends its turn with the start of the next.
    ("[gMASK]", &["<|endoftext|>", "<|user|>", "<|observation|>"]),
    // Phi-3 and later.
    ("<|assistant|>", &["<|end|>", "<|endoftext|>"]),
    // gpt-oss: <|end|> ends a message of several, not the turn.
    ("<|return|>", &["<|return|>", "<|call|>", "<|endoftext|>"]),
];

/// Returns the ids of the special tokens that the tokenizer's families end with.
pub(super) fn of_families(vocabulary: &Vocabulary<'_>) -> Vec<u32> {
    let families = FAMILIES.iter().filter(|(mark, _)| vocabulary.special_id(mark).is_some());
    families.flat_map(|(_, ends)| ends.iter()).filter_map(|text| vocabulary.special_id(text)).collect()
}
