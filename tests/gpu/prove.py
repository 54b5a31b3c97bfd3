"""Proves gen-svc on a GPU: python3 prove.py [PHASE ...] [--work FOLDER] [--minutes 8]

Phases: 1 loads a model and reads its implementations of attention; 2 compares tokens and log
probabilities in f32 with transformers on the same device; 3 compares the errors of bf16; 4 measures
speed, with its floor. Each phase consists of checks. A finished check is kept in FOLDER/results.json
and not run again, so that a proof can be cut into several calls. At the end of its minutes the
program stops between two checks. The results so far are printed and kept.

Needs a Python with torch, transformers and grpcio. The other files of this kit are beside it.
"""

import argparse
import json
import os
import pathlib
import struct
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import torch  # noqa: E402

import floors  # noqa: E402
import models  # noqa: E402
import reference  # noqa: E402
import service  # noqa: E402

# The largest difference of log probabilities between two correct computations in f32.
F32_TOLERANCE = 3e-4
# The largest difference of log probabilities whose logits are equal: the sums of the sampler.
SAMPLER_TOLERANCE = 1e-5
# How much larger than transformers' own the error of bf16 may be.
BF16_FACTOR = 1.5
NEW_TOKENS = 64


class Proof:
    """The settings of a run, and the results so far."""

    def __init__(self, args):
        self.device, self.small = args.device, args.small
        self.program, self.options = args.gen_svc, args.option
        self.work = args.work
        self.work.mkdir(parents=True, exist_ok=True)
        self.file = self.work / "results.json"
        self.results = json.loads(self.file.read_text()) if self.file.exists() else {}
        self.end = time.monotonic() + args.minutes * 60

    def check(self, name, work):
        """Runs a check that has no result yet, while there is time."""
        if name in self.results:
            return
        if time.monotonic() > self.end:
            raise TimeoutError
        start = time.monotonic()
        try:
            result = {"ok": True, **work()}
        except Exception as error:  # A check that cannot run is a result too, and the next check runs.
            result = {"ok": False, "error": f"{type(error).__name__}: {error}"}
        result["seconds"] = round(time.monotonic() - start, 1)
        self.results[name] = result
        self.file.write_text(json.dumps(self.results, indent=1))
        print(line(name, result), flush=True)

    def model(self, name):
        """Returns the folder of a model, which is made if it is missing."""
        return models.make(name, self.work / name, self.device, self.small)

    def vocabulary(self, name):
        """Returns the number of token ids of a model."""
        return models.config(name, self.small).vocab_size

    def log(self):
        """Returns the log of the last service."""
        return (self.work / "gen-svc.log").read_text()

    def on_device(self, *options):
        """Returns options of gen-svc, with the device unless they name one."""
        device = [] if "--device" in options else ["--device", self.device]
        runtime = ["--runtime", "torch"] if self.device == "cpu" else []
        return [*device, *runtime, *options, *self.options]

    def serve(self, name, *options, environment=None):
        """Serves a model on the device."""
        log = self.work / "gen-svc.log"
        return service.serve(self.program, self.model(name), log, self.on_device(*options), environment)

    def enqueued_steps(self, name, options, sequences, positions):
        """Returns the milliseconds of steps that are launched without waits, by number of sequences."""
        steps, options = self.size(64, 4), self.on_device(*options)
        return service.enqueued_steps(self.program, self.model(name), options, sequences, positions, steps)

    def two_devices(self):
        """Returns a list of two devices for gen-svc, or None on a machine with one GPU."""
        if self.device == "cpu":
            return "cpu,cpu"
        return "cuda:0,cuda:1" if torch.cuda.device_count() > 1 else None

    def size(self, large, small):
        """Returns a number of the proof, or the one for a machine without a GPU."""
        return small if self.small else large


def line(name, result):
    """Returns a result as a line."""
    facts = ", ".join(f"{key} {value}" for key, value in result.items() if key not in ("ok", "seconds"))
    return f"{'ok    ' if result['ok'] else 'FAILED'} {name}: {facts} ({result['seconds']} s)"


# Phase 1


def one_token(proof):
    """Loads the model and generates. The service names its GPU."""
    with proof.serve("qwen3-1.7b") as address:
        answer = service.answers(address, [service.request([1, 2, 3], 4)])[0]
        gpu = service.gpu(address)
    is_named = proof.device == "cpu" or (gpu is not None and gpu.memory_bytes > 0 and gpu.kv_blocks > 0)
    return {"ok": len(answer.ids) == 4 and is_named, "tokens": answer.ids, "gpu": gpu and str(gpu)}


def attentions(proof):
    """Reads which implementation of attention computes each kind of layer. Their results are compared
    when a model is loaded."""
    with proof.serve("qwen3-1.7b", "--dtype", "bf16", "--log", "info"):
        pass
    lines = [text for text in proof.log().splitlines() if "attention" in text]
    warned = [text for text in lines if " WARN " in text]
    return {"ok": bool(lines) and not warned, "log": [text.split("gen_svc::")[-1] for text in lines]}


# Phase 2


def expectations(proof, name):
    """Returns the prompts and transformers' greedy tokens in f32, which are kept in a file."""
    file = proof.work / f"{name}.json"
    prompts = models.prompts(32, [7, 120, 400, 33, 900, 64, 250, 16], proof.vocabulary(name), 5)
    prompts = prompts[: proof.size(32, 6)]
    if not file.exists():
        with reference.loaded(proof.model(name), proof.device, torch.float32) as model:
            file.write_text(json.dumps([reference.greedy(model, ids, NEW_TOKENS) for ids in prompts]))
    return prompts, json.loads(file.read_text())


def differences(expected, answers):
    """Returns the answers that differ where they must not, the ties, and the largest difference."""
    wrong, ties, largest = 0, 0, 0.0
    for tokens, answer in zip(expected, answers):
        for token, own in zip(tokens, answer.tokens):
            if token["id"] != own.id:
                is_tie = token["gap"] < 2 * F32_TOLERANCE
                ties, wrong = ties + is_tie, wrong + (not is_tie)
                break
            largest = max(largest, abs(token["logprob"] - own.logprob))
        wrong += len(answer.tokens) != len(tokens)
    return wrong, ties, largest


def judged(proof, name, run):
    """Compares the answers of `run(address, requests)` with the reference."""
    prompts, expected = expectations(proof, name)
    messages = [service.request(ids, NEW_TOKENS, logprobs=0, salt="own") for ids in prompts]
    options, answers, facts = run(messages)
    with proof.serve(name, "--dtype", "f32", *options) as address:
        found = answers(address)
    wrong, ties, largest = differences(expected, found)
    ok = wrong == 0 and largest < F32_TOLERANCE
    return {"ok": ok, "answers": len(found), "wrong": wrong, "ties": ties, "logprob": f"{largest:.1e}", **facts(found)}


def nothing(_):
    """Adds no facts."""
    return {}


def alone(messages):
    """One request after the other."""
    few = messages[:4]
    return [], lambda address: service.answers_in_turn(address, few), nothing


def together(messages):
    """All requests at once."""
    return [], lambda address: service.answers(address, messages, 0.01), nothing


def chunked(messages):
    """All requests, with prompts in small chunks."""
    return ["--prefill-chunk", "48"], lambda address: service.answers(address, messages, 0.01), nothing


def preempted(messages):
    """Few places, which requests of a higher priority take."""

    def run(address):
        urgent = [service.request([5] * 40, 8, priority=5) for _ in range(8)]
        return service.answers(address, [*messages, *urgent], 0.05)[: len(messages)]

    return ["--max-running", "4"], run, nothing


def prefixed(messages):
    """Every prompt twice."""

    def run(address):
        service.answers(address, messages)
        return service.answers(address, messages)

    def facts(answers):
        return {"cached tokens": sum(answer.cached for answer in answers)}

    return [], run, facts


def divided(devices):
    """Returns a run of all requests at once, with the layers divided among devices."""

    def run(messages):
        return ["--device", devices], lambda address: service.answers(address, messages, 0.01), nothing

    return run


# Phase 3


def bf16_error(proof, name):
    """Compares the errors of bf16 with those of transformers in bf16. Both are measured from f32."""
    prompts = models.prompts(4, [200, 50, 333, 100], proof.vocabulary(name), 7)
    scores = {}
    for dtype in (torch.float32, torch.bfloat16):
        with reference.loaded(proof.model(name), proof.device, dtype) as model:
            scores[dtype] = [score for ids in prompts for score in reference.prompt_logprobs(model, ids)]
    messages = [service.request(ids, 1, prompt_logprobs=0) for ids in prompts]
    with proof.serve(name, "--dtype", "bf16") as address:
        own = [token.logprob for answer in service.answers(address, messages) for token in answer.prompt]
    exact, theirs = scores[torch.float32], scores[torch.bfloat16]
    error = [sum(abs(a - b) for a, b in zip(exact, found)) / len(exact) for found in (own, theirs)]
    ok = error[0] <= BF16_FACTOR * error[1]
    return {"ok": ok, "mean error": f"{error[0]:.4f}", "transformers'": f"{error[1]:.4f}", "positions": len(exact)}


def differs(one, other):
    """Returns true if two tokens, or their logits, are different."""
    return one.id != other.id or abs(one.logprob - other.logprob) > SAMPLER_TOLERANCE


def invariance(proof, name):
    """Compares requests alone and together, with and without --batch-invariant. With it, none may differ."""
    lengths = [200, 50, 333, 100, 20, 610, 7, 80]
    prompts = models.prompts(proof.size(32, 6), lengths, proof.vocabulary(name), 11)

    def messages(salt):
        return [service.request(ids, proof.size(32, 6), logprobs=0, salt=salt) for ids in prompts]

    found = {}
    for title, options in (("without", []), ("with", ["--batch-invariant"])):
        whole = ["--prefill-chunk", str(sum(map(len, prompts)))]
        with proof.serve(name, "--dtype", "bf16", *whole, *options) as address:
            alone = service.answers_in_turn(address, messages("alone")[:4])
            together = service.answers(address, messages("together"))[:4]
        pairs = [pair for a, b in zip(alone, together) for pair in zip(a.tokens, b.tokens)]
        found[f"different {title}"] = sum(differs(a, b) for a, b in pairs)
        found["tokens"] = len(pairs)
    return {"ok": found["different with"] == 0, **found}


# Phase 4


def machine_rates(proof):
    """Measures the rates that the device reaches."""
    return {
        "bytes per second": floors.bandwidth(proof.device, proof.small),
        "operations per second": floors.product_rate(proof.device, proof.small),
        "card": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "reference": reference.versions(),
    }


def window_rate(answers):
    """Returns the tokens per second while all streams decode."""
    start, end = max(answer.times[0] for answer in answers), min(answer.times[-1] for answer in answers)
    tokens = sum(start < at <= end for answer in answers for at in answer.times)
    return tokens / (end - start)


def waits(file):
    """Returns the counted waits and the seconds in them."""
    count, nanoseconds = struct.unpack("<QQ", file.read_bytes())
    return count, nanoseconds / 1e9


def decode(proof, name, options):
    """Measures decode at several numbers of sequences."""
    counter = proof.work / "waits"
    counter.write_bytes(bytes(16))
    environment = {"TANDEM_WAITS": str(counter)}
    if (HERE / "lib/libwaits.so").exists():
        environment["LD_PRELOAD"] = str(HERE / "lib/libwaits.so")
    positions, tokens = proof.size(1000, 60), proof.size(128, 16)
    config, rates = models.config(name, proof.small), proof.results["4 machine"]
    found = {}
    counts = proof.size([1, 8, 32, 64, 128], [1, 4])
    room = max(counts) * (positions + 2 * tokens) * floors.pair_bytes(config) >> 20
    metrics = f"127.0.0.1:{service.free_port()}"
    places = ["--max-running", str(max(counts)), "--kv-memory-mib", str(room + 256), "--metrics-listen", metrics]
    with proof.serve(name, *options, *places, environment=environment) as address:
        for sequences in counts:
            prompts = models.prompts(sequences, [positions], config.vocab_size, sequences)
            service.answers(address, [service.request(ids, 2) for ids in prompts])
            before, steps = waits(counter), service.computed_steps(metrics)
            started = time.monotonic()
            answers = service.answers(address, [service.request(ids, tokens) for ids in prompts])
            after, elapsed = waits(counter), time.monotonic() - started
            steps = service.computed_steps(metrics) - steps
            rate = window_rate(answers)
            floor = floors.decode_bytes(config, sequences, positions + tokens / 2) / rates["bytes per second"]
            found[f"{sequences} sequences"] = {
                "tokens/s": round(rate, 1),
                "floor ms": round(1000 * floor, 2),
                "step ms": round(1000 * sequences / rate, 2),
                "share of floor": round(floor * rate / sequences, 3),
                "waits per step": round((after[0] - before[0]) / steps, 3),
                "share of time in waits": round((after[1] - before[1]) / elapsed, 3),
            }
    enqueued = proof.enqueued_steps(name, options, counts, positions + tokens // 2)
    for sequences in counts:
        facts = found[f"{sequences} sequences"]
        facts["step ms without waits"] = round(enqueued[sequences], 2)
        facts["idle share"] = round(1 - enqueued[sequences] / facts["step ms"], 3)
    return found


def launches(proof):
    """Measures the time in which the host launches a step of qwen3-1.7b: that of a model with as many
    operations, which computes next to nothing."""
    steps = proof.enqueued_steps("launches", ["--dtype", "bf16"], proof.size([1, 32], [1]), proof.size(100, 20))
    return {f"{sequences} sequences": f"{milliseconds:.2f} ms" for sequences, milliseconds in steps.items()}


def prefill(proof, name, options):
    """Measures prompts of two lengths."""
    config, rates = models.config(name, proof.small), proof.results["4 machine"]
    found = {}
    with proof.serve(name, *options) as address:
        for length in proof.size([512, 4096], [32, 128]):
            prompts = models.prompts(4, [length], config.vocab_size, length)
            messages = [service.request(ids, 1) for ids in prompts]
            times = [answer.summary.timings.prefill_ms / 1000 for answer in service.answers_in_turn(address, messages)]
            floor = floors.prefill_operations(config, length) / rates["operations per second"]
            found[f"{length} tokens"] = {"ms": round(1000 * min(times), 2), "share of rate": round(floor / min(times), 3)}
    return found


def peer(proof, name):
    """Measures transformers' batched generation and prefill in bf16."""
    positions, found = proof.size(1000, 60), {}
    vocabulary = proof.vocabulary(name)
    with reference.loaded(proof.model(name), proof.device, torch.bfloat16) as model:
        for sequences in proof.size([1, 32], [1, 4]):
            prompts = models.prompts(sequences, [positions], vocabulary, sequences)
            found[f"{sequences} sequences"] = {"tokens/s": round(reference.decode_rate(model, prompts, 32), 1)}
        ids = models.prompts(1, [proof.size(4096, 128)], vocabulary, 9)[0]
        found[f"{len(ids)} tokens"] = {"ms": round(1000 * reference.prefill_seconds(model, ids), 2)}
    return found


def phase_1(proof):
    """Loads, one token, the implementations of attention."""
    proof.check("1 one token", lambda: one_token(proof))
    proof.check("1 attention", lambda: attentions(proof))


def phase_2(proof):
    """Tokens and log probabilities in f32."""
    for name in ("qwen3-1.7b", "gemma3", "mixture"):
        for run in (alone, together, chunked, preempted, prefixed):
            proof.check(f"2 {name} {run.__name__}", lambda: judged(proof, name, run))
        if devices := proof.two_devices():
            proof.check(f"2 {name} on {devices}", lambda: judged(proof, name, divided(devices)))


def phase_3(proof):
    """The errors of bf16."""
    for name in ("qwen3-1.7b", "gemma3", "mixture"):
        proof.check(f"3 {name}", lambda: bf16_error(proof, name))
        proof.check(f"3 {name} invariance", lambda: invariance(proof, name))


def phase_4(proof):
    """Speed."""
    proof.check("4 machine", lambda: machine_rates(proof))
    proof.check("4 launches", lambda: launches(proof))
    for name in ("qwen3-8b", "qwen3-1.7b", "mixture"):
        proof.check(f"4 {name} decode", lambda: decode(proof, name, ["--dtype", "bf16"]))
        proof.check(f"4 {name} prefill", lambda: prefill(proof, name, ["--dtype", "bf16"]))
        proof.check(f"4 {name} transformers", lambda: peer(proof, name))
    proof.check("4 qwen3-8b int8", lambda: decode(proof, "qwen3-8b", ["--quantize", "int8"]))


def table(results):
    """Returns the speeds as a table in Markdown."""
    rows = [
        "| model | case | tokens/s or ms | share of the floor | idle share | transformers | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in ("qwen3-8b", "qwen3-1.7b", "mixture"):
        theirs = results.get(f"4 {name} transformers", {})
        for part in ("decode", "prefill"):
            for case, own in results.get(f"4 {name} {part}", {}).items():
                if isinstance(own, dict):
                    rows.append(table_row(name, case, own, theirs.get(case)))
    return "\n".join(rows)


def table_row(name, case, own, other):
    """Returns the speed of one case, beside transformers' if that was measured."""
    unit = "tokens/s" if "tokens/s" in own else "ms"
    share = own.get("share of floor", own.get("share of rate"))
    cells = [name, case, f"{own[unit]} {unit}", share, own.get("idle share", "")]
    if other is None:
        return "| " + " | ".join(map(str, [*cells, "", ""])) + " |"
    ratio = own[unit] / other[unit] if unit == "tokens/s" else other[unit] / own[unit]
    return "| " + " | ".join(map(str, [*cells, other[unit], f"{ratio:.2f} x"])) + " |"


PHASES = {"1": phase_1, "2": phase_2, "3": phase_3, "4": phase_4}


def arguments():
    """Returns the arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("phases", nargs="*", choices=list(PHASES), metavar="PHASE", help="phases to run [default: all]")
    parser.add_argument("--device", default="cuda:0", help="device of both sides")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("gpu-proof"), help="folder of models and results")
    parser.add_argument("--minutes", type=float, default=8, help="time after which no check begins")
    parser.add_argument("--gen-svc", type=pathlib.Path, default=HERE / "bin/gen-svc", help="program to prove")
    parser.add_argument("--option", action="append", default=[], help="further option of gen-svc serve, repeatable")
    parser.add_argument("--small", action="store_true", help="tiny models, to try this program without a GPU")
    return parser.parse_args()


def main():
    """Runs the phases, and returns the exit status."""
    args = arguments()
    proof = Proof(args)
    try:
        for phase in args.phases or PHASES:
            PHASES[phase](proof)
    except TimeoutError:
        print("out of time; the same command continues", flush=True)
    if "4 machine" in proof.results:
        print(table(proof.results))
    failed = [name for name, result in proof.results.items() if not result["ok"]]
    print(f"{len(proof.results)} checks, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
