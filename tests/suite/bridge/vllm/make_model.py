"""Makes two folders for vLLM, which reads no GGUF. Arguments: GGUF FOLDER RANDOM_FOLDER.

The first has the default model, and the second a small model with its tokenizer, random weights, and a count of heads that
two processes can share.

The weights are the file's, as 32-bit floats. transformers does not save a model that it loaded from such a file, so that
they move into a new one.
"""

import os
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

source, target = sys.argv[1], sys.argv[2]
folder, name = os.path.split(source)
loaded = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
model = AutoModelForCausalLM.from_config(loaded.config)
model.load_state_dict(loaded.state_dict())
model = model.float()
if hasattr(model.config, "quantization_config"):
    del model.config.quantization_config
model.generation_config.eos_token_id = loaded.config.eos_token_id
model.save_pretrained(target)
tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
tokenizer.save_pretrained(target)

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=model.config.vocab_size,
    hidden_size=256,
    intermediate_size=512,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=64,
    max_position_embeddings=4096,
    initializer_range=0.1,
    bos_token_id=model.config.bos_token_id,
    eos_token_id=model.config.eos_token_id,
)
LlamaForCausalLM(config).save_pretrained(sys.argv[3])
tokenizer.save_pretrained(sys.argv[3])
