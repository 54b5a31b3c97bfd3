"""Phase 3: the errors of bf16, fewer bits on both devices, and effects of the batch."""

import statistics

import torch

import compare
import reference
from exact import MODELS
from service import likeliest, request

# How many times as large as transformers' own the error of bf16 may be. Also how many times as large as the difference
# of 16 bits and f32 that of two devices may be: between gen-svc on a CPU and transformers, whose weights were those
# that the packed ones express, it was 0.8 to 1.1 times as large. Packing itself changed the numbers by 1.6 times that
# with 8 bits, and by 10 times with 4 bits, or more.
FACTOR = 1.5
# The largest difference of log probabilities whose logits are equal: the sums of the sampler.
SAMPLER_TOLERANCE = 1e-5
NEW_TOKENS = 32
# The dtype and the further options of what both devices compute.
FORMS = {
    "f16": ("f16", []),
    "bf16": ("bf16", []),
    "int8": ("bf16", ["--quantize", "int8"]),
    "int4": ("bf16", ["--quantize", "int4"]),
}


def own_rows(proof, name, prompts):
    """Returns prompts with gen-svc's outputs in bf16, and their log probabilities."""
    messages = [request(ids, NEW_TOKENS, logprobs=20, prompt_logprobs=0) for ids in prompts]
    answers = proof.service(name, "--dtype", "bf16").answers(messages)
    return [([*ids, *answer.ids], compare.rows(answer)) for ids, answer in zip(prompts, answers)]


def exact_rows(proof, name, outputs):
    """Returns transformers' log probabilities in f32, of gen-svc's outputs."""
    model = proof.reference(name, torch.float32)
    return [[dict(row) for row in reference.of_prompt(model, ids, compare.COMPARED)] for ids, _ in outputs]


def typical(proof, name):
    """Returns how errors are summarized. Rounding may choose another expert, which changes the rest of an output:
    few such outputs decide a mean."""
    return statistics.median if hasattr(proof.config(name), "num_experts") else statistics.fmean


def bf16_errors(proof, name):
    """Compares the errors of bf16 with those of transformers in bf16, in prompts and in outputs. Both are measured
    from f32."""
    prompts = proof.prompts(name, [200, 50, 333, proof.size(1500, 100)], 7, 8)
    outputs = own_rows(proof, name, prompts)
    exact, model = exact_rows(proof, name, outputs), proof.reference(name, torch.bfloat16)
    own, theirs = [[], []], [[], []]
    for prompt, (ids, rows), right in zip(prompts, outputs, exact):
        scores = reference.scores(model, ids)
        for part, places in enumerate(compare.places(ids, len(prompt), right, rows)):
            wanted = compare.values(right, places)
            own[part] += compare.errors(compare.values(rows, places), wanted)
            theirs[part] += compare.errors(reference.at(scores, places), wanted)
    error = [[typical(proof, name)(part) for part in parts] for parts in (own, theirs)]
    return {
        "ok": all(mine <= FACTOR * other for mine, other in zip(*error)),
        "errors in prompts, outputs": [f"{value:.2e}" for value in error[0]],
        "transformers'": [f"{value:.2e}" for value in error[1]],
        "compared": sum(map(len, own)),
    }


def differs(one, other):
    """Returns true if two tokens, or their logits, are different."""
    return one.id != other.id or abs(one.logprob - other.logprob) > SAMPLER_TOLERANCE


def invariance(proof, name):
    """Compares requests alone and together, with and without --batch-invariant. With it, none may differ."""
    prompts = proof.prompts(name, [200, 50, 333, 100, 20, 610, 7, 80], 11, proof.size(32, 6))
    whole = ["--prefill-chunk", str(sum(map(len, prompts)))]
    found = {}
    for title, options in (("without", []), ("with", ["--batch-invariant"])):
        service = proof.service(name, "--dtype", "bf16", *whole, *options)
        tokens = proof.size(32, 6)
        messages = [[request(ids, tokens, logprobs=0, salt=salt) for ids in prompts] for salt in ("alone", "together")]
        alone, together = service.answers_in_turn(messages[0][:4]), service.answers(messages[1])[:4]
        pairs = [pair for a, b in zip(alone, together) for pair in zip(a.tokens, b.tokens)]
        found |= {f"different {title}": sum(differs(a, b) for a, b in pairs), "tokens": len(pairs)}
    return {"ok": found["different with"] == 0, **found}


def outputs_of(proof, name, dtype, *options):
    """Returns the answers to a few short requests, whose outputs together are products of few rows."""
    prompts = proof.prompts(name, [40, 7, 90, 20], 13, 8)
    messages = [request(ids, NEW_TOKENS, logprobs=20, prompt_logprobs=0) for ids in prompts]
    return proof.service(name, "--dtype", dtype, *options).answers(messages)


def difference(proof, name, one, other):
    """Returns the differences of log probabilities between answers, as a number: for prompts, and for outputs as far
    as they are equal."""
    parts = [[], []]
    for a, b in zip(one, other, strict=True):
        parts[0] += [abs(own.logprob - its.logprob) for own, its in zip(a.prompt, b.prompt, strict=True)]
        for own, its in compare.shared(a.tokens, b.tokens):
            rows = likeliest(own), likeliest(its)
            parts[1] += [abs(rows[0][id] - rows[1][id]) for id in rows[0].keys() & rows[1].keys()]
    return [typical(proof, name)(part) for part in parts]


def own_error(proof, name, dtype):
    """Returns the differences between a dtype and f32 on the device."""

    def make():
        return difference(proof, name, *(outputs_of(proof, name, each) for each in (dtype, "f32")))

    return proof.kept(f"{name}.{dtype}.errors.json", make)


def devices(proof, name, form):
    """Compares the device with the CPU, which both compute one form of the weights."""
    dtype, options = FORMS[form]
    error = own_error(proof, name, dtype)
    own = outputs_of(proof, name, dtype, *options)
    theirs = outputs_of(proof, name, dtype, *options, "--device", "cpu-torch")
    found = difference(proof, name, own, theirs)
    return {
        "ok": all(value <= FACTOR * other for value, other in zip(found, error)),
        "differences in prompts, outputs": [f"{value:.2e}" for value in found],
        f"of {dtype} and f32": [f"{value:.2e}" for value in error],
    }


def phase(proof):
    """The errors of bf16, and of fewer bits."""
    for name in ("heads-128", "experts"):
        proof.check_model(f"3 {name} model", 60, name)
        for form in FORMS:
            proof.check(f"3 {name} {form} as on a CPU", 90, devices, name, form)
    for name in MODELS:
        proof.check(f"3 {name}", 150, bf16_errors, name)
        proof.check(f"3 {name} invariance", 150, invariance, name)
