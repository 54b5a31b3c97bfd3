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
        free()


def free():
    """Gives the memory of unused tensors back to the device."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def synchronize(device):
    """Waits for the device's work."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def likeliest(scores, count):
    """Returns the likeliest tokens of each row of log probabilities, the likeliest first."""
    best = scores.topk(count)
    rows = zip(best.indices.tolist(), best.values.tolist())
    return [list(zip(ids, values)) for ids, values in rows]


@torch.inference_mode()
def greedy(model, prompts, count, top):
    """Returns, for each of several prompts of one length, the likeliest tokens at each position of greedy
    generation. The first is the chosen one."""
    out = model(torch.tensor(prompts, device=model.device), use_cache=True, logits_to_keep=1)
    found = [[] for _ in prompts]
    for _ in range(count):
        best = likeliest(torch.log_softmax(out.logits[:, -1].float(), -1), top)
        for positions, row in zip(found, best):
            positions.append(row)
        chosen = torch.tensor([[row[0][0]] for row in best], device=model.device)
        out = model(chosen, past_key_values=out.past_key_values, use_cache=True, logits_to_keep=1)
    return found


@torch.inference_mode()
def scores(model, ids):
    """Returns the log probabilities of all tokens after each token but the last: `[T - 1, vocabulary]`"""
    logits = model(torch.tensor([ids], device=model.device)).logits[0, :-1]
    return torch.log_softmax(logits.float(), -1)


def at(found, places):
    """Returns the log probabilities of pairs of a position and an id."""
    positions, ids = zip(*places)
    return found[list(positions), list(ids)].tolist()


def of_prompt(model, ids, top):
    """Returns the log probability of each prompt token but the first, and the likeliest at its position."""
    found = scores(model, ids)
    wanted = torch.tensor(ids[1:], device=found.device)
    own = found.gather(1, wanted[:, None])[:, 0].tolist()
    return [[*best, pair] for best, pair in zip(likeliest(found, top), zip(ids[1:], own))]


@torch.inference_mode()
def sure_positions(model, ids, tolerance):
    """Returns the number of tokens before the first whose choice of experts is a tie: the logits of the last chosen
    and the first other expert of a layer differ by less than the tolerance. Without experts, all tokens."""
    routers = [module for name, module in model.named_modules() if name.endswith("mlp.gate")]
    sure = torch.ones(len(ids), dtype=torch.bool, device=model.device)

    def look(router, inputs, _):
        logits = torch.nn.functional.linear(inputs[0].reshape(-1, router.weight.shape[1]), router.weight)
        best = logits.topk(model.config.num_experts_per_tok + 1).values
        sure.logical_and_(best[:, -2] - best[:, -1] >= tolerance)

    hooks = [router.register_forward_hook(look) for router in routers]
    try:
        model(torch.tensor([ids], device=model.device), logits_to_keep=1)
    finally:
        for hook in hooks:
            hook.remove()
    return int(sure.long().cumprod(0).sum())


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
