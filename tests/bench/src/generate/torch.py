"""Measures transformers. Variants: float32, bfloat16."""

import os
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
os.environ["TQDM_DISABLE"] = "1"

import peer  # noqa: E402


class Transformers:
    def __init__(self, path, threads, dtype):
        import torch
        import transformers

        transformers.utils.logging.disable_progress_bar()
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        self.torch = torch
        self.version = f"transformers {transformers.__version__}, torch {torch.__version__}"
        place, file = (Path(path).parent, Path(path).name) if Path(path).is_file() else (path, None)
        model = transformers.AutoModelForCausalLM.from_pretrained(place, gguf_file=file, dtype=getattr(torch, dtype))
        self.model = model.eval()

    def start(self, prompts, tokens):
        ids, cache = self.torch.tensor(prompts), None
        yield
        for _ in range(tokens):
            output = self.model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
            ids, cache = output.logits[:, -1].argmax(-1, keepdim=True), output.past_key_values
            yield ids.tolist()

    def score(self, ids):
        ids = self.torch.tensor(ids)
        logits = self.model(ids[None]).logits[0, :-1].float()
        logprobs = logits.log_softmax(-1).gather(-1, ids[1:, None])[:, 0]
        return logprobs.tolist(), logits.argmax(-1).tolist()


peer.serve(Transformers)
