"""A peer: loads a model, then answers each line of JSON on stdin with one on stdout.

First line                                     {"version": TEXT} or {"error": TEXT}
{"run": [[ID, ...], ...], "tokens": COUNT}     {"seconds": [...]}: when each token was there, of all prompts at once
{"score": [ID, ...]}                           {"logprobs": [...], "likeliest": [...]}: of each id but the first
{"image": PATH}                                what `image` returns
"""

import json
import os
import sys
import time


def serve(load):
    """`load` takes the model's path, the number of threads and the variant. The module that it returns has `version`, `start` and `score`."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Libraries print too.

    def say(answer):
        print(json.dumps(answer), file=answers, flush=True)

    try:
        peer = load(sys.argv[1], int(sys.argv[2]), sys.argv[3])
    except Exception as error:
        return say({"error": f"{type(error).__name__}: {error}"})
    say({"version": peer.version})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "image" in request:
                say(peer.image(request["image"]))
            else:
                say(score(peer, **request) if "score" in request else run(peer, **request))
        except Exception as error:
            say({"error": f"{type(error).__name__}: {error}"})


class WarmedUp:
    """A system whose first step of a shape makes kernels and memory for it. `generate` yields when all prompts have one token more."""

    shapes = frozenset()

    def start(self, prompts, tokens):
        shape = (len(prompts), len(prompts[0]))
        if shape not in self.shapes:
            self.shapes |= {shape}
            list(self.generate(prompts, 2))
        yield
        yield from self.generate(prompts, tokens)


def run(peer, run, tokens):
    """Reads the prompts, which are of one length, and generates greedily. `start` is a generator that ends a step at each yield."""
    steps = peer.start(run, tokens)
    next(steps)  # Allocates the KV cache before the clock starts.
    start, seconds = time.perf_counter(), []
    for _ in steps:
        seconds.append(time.perf_counter() - start)
    return {"seconds": seconds}


def score(peer, score):
    logprobs, likeliest = peer.score(score)
    return {"logprobs": logprobs, "likeliest": likeliest}
