"""Phase 2: tokens and log probabilities in f32, compared with transformers in f32."""

import torch

import compare
import reference
from service import likeliest, request

# Sampled requests, and those whose draw may choose another token than on a CPU, because the random number falls
# between a boundary of one computation and that of the other.
DRAWS, OTHER_DRAWS = 32, 3
SAMPLED_TOKENS = 24

# The largest difference of log probabilities between two correct computations in f32. Tokens may differ where
# the gap between the reference's two likeliest is smaller.
TOLERANCE = 3e-4
# The largest difference of an expert's logit between two correct computations in f32. A smaller gap may choose
# another expert, which changes the rest of an output.
EXPERT_TOLERANCE = 5e-5
NEW_TOKENS = 64
# The likeliest tokens that are compared at each position.
TOP = 20
LENGTHS = [7, 120, 400, 33, 900, 64, 250, 16]
MODELS = ("qwen3-1.7b", "gemma3", "mixture")
# The least prompt of which a part must be found in the prefix cache.
CACHED_LEAST = 32


def mixed_prompts(proof, name):
    """Returns the prompts of most checks."""
    return proof.prompts(name, LENGTHS, 5, proof.size(32, 6))


def expected_outputs(proof, name):
    """Returns the likeliest tokens at each position of transformers' greedy outputs, as far as they are sure.
    Prompts of one length run together."""

    def make():
        prompts, model = mixed_prompts(proof, name), proof.reference(name, torch.float32)
        found = [None] * len(prompts)
        for length in LENGTHS:
            places = [at for at, ids in enumerate(prompts) if len(ids) == length]
            outputs = reference.greedy(model, [prompts[at] for at in places], NEW_TOKENS, TOP) if places else []
            for at, output in zip(places, outputs):
                found[at] = sure(model, prompts[at], output)
        return found

    return proof.kept(f"{name}.outputs.json", make)


def sure(model, prompt, output):
    """Returns the positions of an output before a tie of experts."""
    ids = [*prompt, *(row[0][0] for row in output)]
    return output[: max(reference.sure_positions(model, ids, EXPERT_TOLERANCE) - len(prompt) + 1, 0)]


def expected_prompts(proof, name):
    """Returns the likeliest tokens at each position of some prompts, from transformers, as far as they are sure."""

    def make():
        model, prompts = proof.reference(name, torch.float32), mixed_prompts(proof, name)[:4]
        counts = [reference.sure_positions(model, ids, EXPERT_TOLERANCE) for ids in prompts]
        return [reference.of_prompt(model, ids, TOP)[:count] for ids, count in zip(prompts, counts)]

    return proof.kept(f"{name}.prompts.json", make)


def expected(proof, name):
    """Makes both files."""
    outputs, prompts = expected_outputs(proof, name), expected_prompts(proof, name)
    return {"sure tokens": sum(map(len, outputs)), "sure positions of prompts": sum(map(len, prompts))}


def logits(proof, name):
    """Compares the likeliest tokens at every position of some prompts."""
    prompts, wanted = mixed_prompts(proof, name)[:4], expected_prompts(proof, name)
    service = proof.service(name, "--dtype", "f32")
    answers = service.answers([request(ids, 1, prompt_logprobs=TOP) for ids in prompts])
    if [len(answer.prompt) for answer in answers] != [len(ids) - 1 for ids in prompts]:
        raise RuntimeError("log probabilities of prompt tokens are missing")
    pairs = [pair for answer, theirs in zip(answers, wanted) for pair in zip(answer.prompt, theirs)]
    found = [compare.distance(dict(theirs), likeliest(own)) for own, theirs in pairs]
    return {"ok": max(found) < TOLERANCE, "positions": len(found), "largest difference": f"{max(found):.1e}"}


class Difference:
    """The difference between the outputs of a run and of transformers."""

    def __init__(self):
        self.wrong, self.ties, self.positions, self.largest = 0, 0, 0, 0.0

    def add(self, theirs, answer):
        """Compares an output up to the first token that differs."""
        self.wrong += len(answer.tokens) != NEW_TOKENS
        for row, own in zip(theirs, answer.tokens):
            self.positions += 1
            self.largest = max(self.largest, compare.distance(dict(row), likeliest(own)))
            if own.id != row[0][0]:
                is_tie = row[0][1] - row[1][1] < TOLERANCE
                self.ties, self.wrong = self.ties + is_tie, self.wrong + (not is_tie)
                break

    def facts(self):
        """Returns the result of a check."""
        return {
            "ok": self.wrong == 0 < self.positions and self.largest < TOLERANCE,
            "positions": self.positions,
            "wrong": self.wrong,
            "ties": self.ties,
            "largest difference": f"{self.largest:.1e}",
        }


def outputs(proof, name, run):
    """Compares the outputs of a run. The run also returns whether its condition, such as preemption, occurred."""
    prompts, wanted = mixed_prompts(proof, name), expected_outputs(proof, name)
    messages = [request(ids, NEW_TOKENS, logprobs=TOP, salt=run.__name__) for ids in prompts]
    found, occurred, more = run(proof, name, messages)
    difference = Difference()
    for theirs, answer in zip(wanted, found):
        difference.add(theirs, answer)
    facts = difference.facts()
    return {**facts, "ok": facts["ok"] and occurred, "outputs": len(found), **more}


def alone(proof, name, messages):
    """One request after the other."""
    return proof.service(name, "--dtype", "f32").answers_in_turn(messages[:4]), True, {}


def together(proof, name, messages):
    """All requests at once."""
    return proof.service(name, "--dtype", "f32").answers(messages, 0.01), True, {}


def prefixed(proof, name, messages):
    """Every prompt twice. The second time, the prefix cache has all but the shortest."""
    service = proof.service(name, "--dtype", "f32")
    service.answers(messages)
    found = service.answers(messages)
    long = [answer.cached for answer, message in zip(found, messages) if len(message.token_ids.ids) > CACHED_LEAST]
    return found, all(long), {"cached tokens": sum(answer.cached for answer in found)}


def chunked(proof, name, messages):
    """All requests, with prompts in small chunks."""
    return proof.service(name, "--dtype", "f32", "--prefill-chunk", "48").answers(messages, 0.01), True, {}


def preempted(proof, name, messages):
    """All requests at once, while few are running and requests of a higher priority take their places."""
    service = proof.service(name, "--dtype", "f32", "--max-running", "4")
    before = service.metric("tandem_engine_preemptions")
    urgent = [request([5] * 40, 8, priority=5) for _ in range(8)]
    found = service.answers(messages, urgent=urgent)
    preemptions = service.metric("tandem_engine_preemptions") - before
    return found, preemptions > 0, {"preemptions": preemptions}


def divided(proof, name, messages):
    """All requests at once, with the layers divided between two devices."""
    return proof.service(name, "--dtype", "f32", "--device", proof.two_devices()).answers(messages, 0.01), True, {}


def drawn_request(proof, name, i):
    """Returns a sampled request. The last one has a grammar."""
    sampling = {
        "seed": i,
        "temperature": [0.3, 0.6, 1.0][i % 3],
        "top_k": [0, 40, 5, 2000][i % 4],
        "top_p": [1.0, 0.9, 0.5][i // 2 % 3],
        "min_p": [0.0, 0.02][i // 3 % 2],
        "repetition_penalty": [1.0, 1.2][i // 4 % 2],
        "presence_penalty": [0.0, 0.5][i // 5 % 2],
        "frequency_penalty": [0.0, 0.3][i // 7 % 2],
        "logit_bias": {i: 4.0, i + 40: -4.0} if i % 2 else {},
    }
    grammar = {"regex": f"[a-f]{{{SAMPLED_TOKENS}}}"} if i == DRAWS - 1 else None
    ids = proof.prompts(name, [7, 33, 64, 16], 17, DRAWS)[i]
    return request(ids, SAMPLED_TOKENS, logprobs=TOP, sampling=sampling, grammar=grammar)


def drawn_distance(own, theirs):
    """Returns the largest difference of a position's log probabilities: of the likeliest tokens, and of the chosen
    one if both chose it."""
    rows = [{top.id: top.logprob for top in token.top_logprobs} for token in (own, theirs)]
    chosen = abs(own.logprob - theirs.logprob) if own.id == theirs.id else 0.0
    return max(compare.distance(*rows), chosen)


def sampled(proof, name):
    """Compares sampled outputs with those of gen-svc's kernels on the CPU, whose rows the host samples."""
    messages = [drawn_request(proof, name, i) for i in range(DRAWS)]
    own = proof.service(name, "--dtype", "f32").answers(messages)
    theirs = proof.service(name, "--dtype", "f32", "--device", "cpu").answers(messages)
    pairs = [list(compare.shared(a.tokens, b.tokens)) for a, b in zip(own, theirs)]
    others = sum(a.id != b.id for output in pairs for a, b in output[-1:])
    largest = max(drawn_distance(a, b) for output in pairs for a, b in output)
    is_whole = all(len(answer.tokens) == SAMPLED_TOKENS for answer in [*own, *theirs])
    # The id of a byte is the byte.
    obeys = set(own[-1].ids) <= set(b"abcdef")
    return {
        "ok": is_whole and obeys and others <= OTHER_DRAWS and largest < TOLERANCE,
        "outputs": len(own),
        "positions": sum(map(len, pairs)),
        "other draws": others,
        "largest difference": f"{largest:.1e}",
        "output of the grammar": bytes(own[-1].ids).decode() if obeys else own[-1].ids,
    }


def phase(proof):
    """Tokens and log probabilities in f32."""
    for name in MODELS:
        proof.check_model(f"2 {name} model", 120, name)
        proof.check(f"2 {name} transformers", 150, expected, name)
        proof.check(f"2 {name} logits", 120, logits, name)
        runs = [alone, together, prefixed, chunked, preempted, *([divided] if proof.two_devices() else [])]
        for run in runs:
            proof.check(f"2 {name} {run.__name__}", 120, outputs, name, run)
        if name == "qwen3-1.7b":
            proof.check(f"2 {name} sampled", 150, sampled, name)
