"""Phase 1: loads a model, generates, and compares both implementations of attention."""

from statistics import fmean

import compare
from service import request

# How many times as large as the error of buckets the error of flash attention in bf16 may be.
FACTOR = 1.5
NEW_TOKENS = 16
# The share of a GPU's memory that gen-svc uses.
GPU_MEMORY = 0.9


def one_token(proof):
    """Loads the model and generates. The service and its metrics name the GPU and its memory."""
    service = proof.service("qwen3-1.7b")
    answer = service.answers([request([1, 2, 3], 4)])[0]
    gpu, used = service.gpu(), service.metric("tandem_engine_gpu_memory")
    is_named = gpu is None if proof.device == "cpu" else bool(gpu and gpu.kv_blocks and used == gpu.memory_bytes)
    return {
        "ok": len(answer.ids) == 4 and is_named,
        "tokens": answer.ids,
        "gpu": gpu and str(gpu).replace("\n", "; "),
        "bytes used and free by /metrics": used,
    }


def memory(proof):
    """Fills the default service with as many long prompts as it runs at once. The GPU's used memory, that of other
    processes included, must stay within the share that the service may use."""
    if proof.device == "cpu":
        return {"skipped": "a CPU has no memory of a GPU"}
    service = proof.service("qwen3-1.7b")
    prompts = proof.prompts("qwen3-1.7b", [1000], 19, 128)
    # The log probabilities of prompts need many steps, so that few requests have them.
    of_prompts = [20] * 4 + [None] * 124
    pairs = zip(prompts, of_prompts, strict=True)
    answers = service.answers([request(ids, NEW_TOKENS, logprobs=20, prompt_logprobs=top) for ids, top in pairs])
    used, total = service.metric("tandem_engine_gpu_memory", 'state="used"'), service.gpu().memory_bytes
    return {
        "ok": all(len(answer.ids) == NEW_TOKENS for answer in answers) and used <= GPU_MEMORY * total,
        "outputs": len(answers),
        "used bytes": used,
        "share of the card": round(used / total, 3),
        "preemptions": service.metric("tandem_engine_preemptions"),
    }


def methods(service):
    """Returns the implementations of attention that a service chose, and its warnings about them."""
    lines = [text for text in service.log.read_text().splitlines() if "attention" in text]
    chosen = {"flash" if "flash" in text else "buckets" for text in lines if "attention chosen" in text}
    return sorted(chosen), [text for text in lines if " WARN " in text]


def chosen(proof):
    """Reads which implementation computes the layers. gen-svc compares both when it loads a model."""
    names, warnings = methods(proof.service("qwen3-1.7b", "--dtype", "bf16", "--log", "info"))
    wanted = ["buckets"] if proof.device == "cpu" else ["flash"]
    return {"ok": names == wanted and not warnings, "chosen": names, "warnings": warnings}


def attended(proof, name, prompts):
    """Returns the rows of prompts and outputs in bf16, the ids, and the implementation."""
    chunk = str(proof.size(512, 32))
    service = proof.service(name, "--dtype", "bf16", "--prefill-chunk", chunk, "--log", "info")
    answers = service.answers([request(ids, NEW_TOKENS, logprobs=20, prompt_logprobs=0) for ids in prompts])
    whole = [[*ids, *answer.ids] for ids, answer in zip(prompts, answers)]
    return [compare.rows(answer) for answer in answers], whole, methods(service)[0]


def mean_errors(proof, name, prompts, found, whole):
    """Returns the mean errors of prompts and outputs. The same weights in f32 are exact."""
    service = proof.service(name, "--dtype", "f32")
    answers = service.answers([request(ids, 1, prompt_logprobs=20) for ids in whole])
    errors = [[], []]
    for prompt, ids, own, answer in zip(prompts, whole, found, answers):
        exact = compare.rows(answer)
        for part, places in zip(errors, compare.places(ids, len(prompt), exact, own)):
            part += compare.errors(compare.values(own, places), compare.values(exact, places))
    return [fmean(part) for part in errors]


def implementations(proof, name):
    """Compares flash attention and buckets in bf16, with each other and with f32: long prompts, and outputs of
    more positions than a piece has."""
    prompts = proof.prompts(name, [proof.size(1500, 90), 200, proof.size(1100, 70), 30], 3)
    flash, whole, flash_name = attended(proof, name, prompts)
    flash_errors = mean_errors(proof, name, prompts, flash, whole)
    buckets, whole, buckets_name = attended(proof, f"{name}-bound", prompts)
    buckets_errors = mean_errors(proof, name, prompts, buckets, whole)
    of_prompts = [zip(a[: len(ids) - 1], b) for ids, a, b in zip(prompts, flash, buckets)]
    between = [abs(a[id] - b[id]) for pairs, ids in zip(of_prompts, prompts) for (a, b), id in zip(pairs, ids[1:])]
    is_close = all(one <= FACTOR * other for one, other in zip(flash_errors, buckets_errors))
    return {
        "ok": is_close and (proof.device == "cpu" or [*flash_name, *buckets_name] == ["flash", "buckets"]),
        "implementations": [*flash_name, *buckets_name],
        "positions": len(between),
        "mean difference": f"{fmean(between):.2e}",
        "largest": f"{max(between):.2e}",
        "mean errors of flash in prompts, outputs": [f"{error:.2e}" for error in flash_errors],
        "mean errors of buckets": [f"{error:.2e}" for error in buckets_errors],
    }


def phase(proof):
    """Loads, one token, both implementations of attention."""
    proof.check_model("1 model qwen3-1.7b", 90, "qwen3-1.7b")
    proof.check("1 one token", 90, one_token)
    proof.check("1 memory", 90, memory)
    proof.check("1 attention", 90, chosen)
    for name in ("heads-128", "heads-256"):
        proof.check(f"1 {name}", 120, implementations, name)
