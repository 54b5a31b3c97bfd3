"""transformers on the same device: greedy tokens, log probabilities, speed."""

import contextlib
import gc
import time

import torch
import transformers


@contextlib.contextmanager
def loaded(folder, device, dtype):
    """Yields a model, and frees its memory at the end."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(device).eval()
    try:
        yield model
    finally:
        del model
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def synchronize(device):
    """Waits for the device's work."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


@torch.inference_mode()
def greedy(model, ids, count):
    """Returns the greedy tokens of one prompt, with their log probabilities and the gap to the second."""
    device = model.device
    out = model(torch.tensor([ids], device=device), use_cache=True, logits_to_keep=1)
    tokens = []
    for _ in range(count):
        scores = torch.log_softmax(out.logits[0, -1].float(), -1)
        best = scores.topk(2)
        tokens.append({"id": int(best.indices[0]), "logprob": float(best.values[0]), "gap": float(best.values[0] - best.values[1])})
        step = best.indices[:1].view(1, 1)
        out = model(step, past_key_values=out.past_key_values, use_cache=True, logits_to_keep=1)
    return tokens


@torch.inference_mode()
def prompt_logprobs(model, ids):
    """Returns the log probability of each prompt token but the first."""
    logits = model(torch.tensor([ids], device=model.device)).logits[0, :-1].float()
    scores = torch.log_softmax(logits, -1)
    wanted = torch.tensor(ids[1:], device=model.device)
    return scores.gather(1, wanted[:, None])[:, 0].tolist()


@torch.inference_mode()
def decode_rate(model, prompts, count):
    """Returns the tokens per second of batched generation, without its prefill."""
    device = str(model.device)
    batch = torch.tensor(prompts, device=model.device)

    def run(tokens):
        synchronize(device)
        start = time.monotonic()
        model.generate(
            batch,
            attention_mask=torch.ones_like(batch),
            do_sample=False,
            min_new_tokens=tokens,
            max_new_tokens=tokens,
            pad_token_id=0,
        )
        synchronize(device)
        return time.monotonic() - start

    run(2)
    return len(prompts) * (count - 1) / (run(count) - run(1))


@torch.inference_mode()
def prefill_seconds(model, ids):
    """Returns the shortest of three times of one prompt."""
    device, times = str(model.device), []
    for _ in range(3):
        synchronize(device)
        start = time.monotonic()
        model(torch.tensor([ids], device=model.device), logits_to_keep=1)
        synchronize(device)
        times.append(time.monotonic() - start)
    return min(times)


def versions():
    """Returns the versions that the reference consists of."""
    return f"transformers {transformers.__version__}, torch {torch.__version__}"
