"""Phase 4: speed, beside the floors of the device and transformers."""

import statistics
import time

import torch

import floors
import reference
from service import request

# The options of each kind of weights, and the bytes of a weight.
KINDS = {"bf16": (["--dtype", "bf16"], 2), "int8": (["--dtype", "bf16", "--quantize", "int8"], 1)}
MODELS = ("qwen3-8b", "qwen3-1.7b", "mixture")
# The positions of a block on a GPU.
BLOCK = 256
PEER_TOKENS = 32


def counts(proof):
    """Returns the numbers of sequences."""
    return proof.size([1, 8, 32, 64, 128], [1, 4])


def sizes(proof):
    """Returns the positions and the new tokens of a sequence in decode."""
    return proof.size(1000, 60), proof.size(256, 16)


def lengths(proof):
    """Returns the lengths of prompts."""
    return proof.size([512, 4096], [32, 128])


def machine(proof):
    """Measures the rates that the device reaches."""
    proof.drop()
    bandwidth, rate = floors.bandwidth(proof.device, proof.small), floors.product_rate(proof.device, proof.small)
    reference.free()
    return {"bytes per second": bandwidth, "operations per second": rate}


def rates(proof):
    """Returns the measured rates."""
    found = proof.checks.results.get("4 machine", {"error": "it has no result"})
    if "error" in found:
        raise RuntimeError(f"no floor, because the check 4 machine failed: {found['error']}")
    return found


def service(proof, name, kind):
    """Returns a service with room for all sequences, whose prompts stay in the prefix cache."""
    positions, tokens = sizes(proof)
    most = max(counts(proof))
    blocks = most * ((positions + tokens) // BLOCK + 2)
    room = blocks * BLOCK * floors.pair_bytes(proof.config(name)) >> 20
    return proof.service(name, *KINDS[kind][0], "--max-running", str(most), "--kv-memory-mib", str(room + 64))


def load(proof, name, kind):
    """Loads a model, and measures the memory of the process itself meanwhile."""
    loaded = service(proof, name, kind)
    return {"load seconds": round(loaded.load_seconds, 1), "peak RssAnon": loaded.peak_memory}


def decode(proof, name, kind, sequences):
    """Measures decode of some sequences. Their prompts are cached, so that each step ends in tokens and one wait."""
    bandwidth, preemptions = rates(proof)["bytes per second"], "tandem_engine_preemptions"
    (positions, tokens), running = sizes(proof), service(proof, name, kind)
    prompts = proof.prompts(name, [positions], sequences, sequences)
    running.answers([request(ids, 2) for ids in prompts])
    steps, (waits, waited) = running.settled("tandem_engine_steps"), running.waits()
    preempted = [running.metric(preemptions)]
    started = time.monotonic()
    answers = running.answers([request(ids, tokens) for ids in prompts])
    elapsed = time.monotonic() - started
    steps, (all_waits, all_waited) = running.settled("tandem_engine_steps") - steps, running.waits()
    preempted.append(running.metric(preemptions))
    seconds, weight_bytes = step_seconds(answers, tokens), KINDS[kind][1]
    read = floors.decode_bytes(proof.config(name), sequences, positions + tokens / 2, weight_bytes)
    floor, counts_waits = read / bandwidth, proof.device == "cpu" or all_waits > waits
    return {
        "ok": counts_waits,
        **({} if counts_waits else {"error": "libwaits.so counted no wait for the GPU"}),
        "tokens/s": round(sequences / seconds, 1),
        "step ms": round(1000 * seconds, 3),
        "floor ms": round(1000 * floor, 3),
        "share of floor": round(floor / seconds, 3),
        "steps": round(steps),
        "waits": all_waits - waits,
        "waits per step": round((all_waits - waits) / steps, 4),
        "share of time in waits": round((all_waited - waited) / elapsed, 3),
        "preemptions before, after": preempted,
    }


def step_seconds(answers, tokens):
    """Returns the time of a step, as the service measures it: a client in Python may be slower than the service.
    The median, because the first streams begin beside prompts, and the last ones end alone."""
    return statistics.median(answer.summary.timings.decode_ms / 1000 for answer in answers) / (tokens - 1)


def enqueued(proof, name, kind):
    """Measures decode steps that are launched without waits."""
    positions, tokens = sizes(proof)
    steps = proof.enqueued_steps(name, KINDS[kind][0], counts(proof), positions + tokens // 2)
    return {f"{sequences} sequences": round(milliseconds, 3) for sequences, milliseconds in steps.items()}


def launches(proof, positions):
    """Measures the time in which the host launches a step of qwen3-1.7b: that of a model with as many
    operations, which computes next to nothing."""
    steps = proof.enqueued_steps("launches", KINDS["bf16"][0], proof.size([1, 32], [1]), positions)
    return {f"{sequences} sequences": f"{milliseconds:.2f} ms" for sequences, milliseconds in steps.items()}


def prefill(proof, name, length):
    """Measures prompts of one length, none of them cached."""
    rate, running = rates(proof)["operations per second"], service(proof, name, "bf16")
    messages = [request(ids, 1, salt=f"{time.monotonic()}") for ids in proof.prompts(name, [length], length, 4)]
    answers = running.answers_in_turn(messages)
    seconds = min(answer.summary.timings.prefill_ms / 1000 for answer in answers)
    floor = floors.prefill_operations(proof.config(name), length) / rate
    return {
        "ms": round(1000 * seconds, 2),
        "floor ms": round(1000 * floor, 2),
        "share of floor": round(floor / seconds, 3),
    }


def peer_load(proof, name):
    """Loads transformers' model."""
    return {"parameters": proof.reference(name, torch.bfloat16).num_parameters()}


def peer_decode(proof, name, sequences):
    """Measures transformers' batched generation."""
    model, prompts = proof.reference(name, torch.bfloat16), proof.prompts(name, [sizes(proof)[0]], sequences, sequences)
    return {"tokens/s": round(reference.decode_rate(model, prompts, PEER_TOKENS), 1)}


def peer_prefill(proof, name, length):
    """Measures transformers' prefill."""
    model, prompt = proof.reference(name, torch.bfloat16), proof.prompts(name, [length], 9)[0]
    return {"ms": round(1000 * reference.prefill_seconds(model, prompt), 2)}


def own(proof, name, kind, numbers):
    """The checks of gen-svc's decode with one model and kind of weights."""
    proof.check(f"4 {name} {kind} load", 150, load, name, kind)
    for sequences in numbers:
        proof.check(f"4 {name} {kind} {sequences} sequences", 60, decode, name, kind, sequences)


def peer(proof, name):
    """The checks of transformers with one model."""
    proof.check(f"4 {name} transformers load", 90, peer_load, name)
    for sequences in counts(proof):
        proof.check(f"4 {name} transformers {sequences} sequences", 60, peer_decode, name, sequences)
    for length in lengths(proof):
        proof.check(f"4 {name} transformers {length} tokens", 60, peer_prefill, name, length)


def phase(proof):
    """Speed."""
    proof.check("4 machine", 60, machine, is_needed=True)
    for positions in (proof.size(100, 20), proof.size(2000, 40)):
        proof.check(f"4 launches at {positions} positions", 60, launches, positions)
    for name in MODELS:
        proof.check_model(f"4 {name} model", 180, name)
        own(proof, name, "bf16", counts(proof))
        for length in lengths(proof):
            proof.check(f"4 {name} bf16 {length} tokens", 60, prefill, name, length)
        proof.check(f"4 {name} bf16 without waits", 120, enqueued, name, "bf16")
        peer(proof, name)
        if name == "qwen3-8b":
            own(proof, name, "int8", proof.size([1, 32, 128], [1, 4]))
