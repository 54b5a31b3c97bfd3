//! The end tokens of tokenizer families, for models whose files contain only one of them.

use super::vocabulary::Vocabulary;

/// The end tokens of tokenizer families, each family identified by a special token that its
/// tokenizers have. A tokenizer config names one eos token. The others are in generation configs,
/// which GGUF files and many folders lack.
const TOKENIZER_FAMILIES: &[(&str, &[&str])] = &[
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
    // DeepSeek. Its role tokens are added, but not special.
    ("<｜begin▁of▁sentence｜>", &["<｜end▁of▁sentence｜>"]),
    // Llama 2, Mistral and others whose vocabulary begins with <unk>, <s> and </s>.
    ("<s>", &["</s>"]),
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

/// Returns the ids of the special tokens that end turns in the tokenizer's family.
pub(super) fn ends(vocabulary: &Vocabulary<'_>) -> Vec<u32> {
    let families = TOKENIZER_FAMILIES.iter().filter(|(mark, _)| vocabulary.special_id(mark).is_some());
    families.flat_map(|(_, ends)| ends.iter()).filter_map(|text| vocabulary.special_id(text)).collect()
}
