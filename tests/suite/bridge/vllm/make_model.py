"""Makes folders for vLLM, which reads no GGUF. Arguments: GGUF VECTORS_MODEL FOLDER RANDOM_FOLDER WIDE_FOLDER.

The first has the default model. The second has a small model with its tokenizer, random weights, and a count of heads that
two processes can share. The third has the vectors' model with heads of 32 numbers in place of 16, which vLLM needs on a CPU:

the added ones are zero, each number keeps the frequency of its rotation, and the query makes up for the other scale.

The weights of the default model are the file's, as 32-bit floats. transformers does not save a model that it loaded from such a file, so that
they move into a new one.
"""

import json
import os
import shutil
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

source, vectors, target, random, wide = sys.argv[1:]
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
LlamaForCausalLM(config).save_pretrained(random)
tokenizer.save_pretrained(random)

SIZE = 16  # of a head
shutil.copytree(vectors, wide, dirs_exist_ok=True)
with open(os.path.join(wide, "config.json"), encoding="utf-8") as file:
    config = json.load(file)
assert config["head_dim"] == SIZE
with open(os.path.join(wide, "config.json"), "w", encoding="utf-8") as file:
    json.dump(config | {"head_dim": 2 * SIZE}, file)


def widened(rows):
    """Doubles the heads of a matrix. The two halves of a head rotate as pairs, and the frequency falls half as fast."""
    heads = rows.reshape(-1, SIZE, rows.shape[1])
    wider = torch.zeros(heads.shape[0], 2 * SIZE, rows.shape[1])
    wider[:, ::2] = heads
    return wider.reshape(-1, rows.shape[1])


weights = load_file(os.path.join(vectors, "model.safetensors"))
for name in weights:
    if name.endswith(("k_proj.weight", "v_proj.weight")):
        weights[name] = widened(weights[name])
    elif name.endswith("q_proj.weight"):
        weights[name] = widened(weights[name]) * 2**0.5
    elif name.endswith("o_proj.weight"):
        weights[name] = widened(weights[name].T.contiguous()).T.contiguous()
save_file(weights, os.path.join(wide, "model.safetensors"))
