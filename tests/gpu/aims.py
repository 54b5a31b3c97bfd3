"""The tables of a proof in Markdown: its speeds, and which aims they reach."""

from typing import NamedTuple

GIB = 1 << 30
MODELS = ("qwen3-8b", "qwen3-1.7b", "mixture")
LARGE = "4 qwen3-8b"


def fact(results, check, key):
    """Returns a fact of a check, or None if it was not measured."""
    return results.get(check, {}).get(key)


def quotient(one, other):
    """Returns a quotient, or None if a number is missing."""
    return one / other if one is not None and other else None


def idle(results, name, case):
    """Returns the share of time in which the GPU is idle: 1 less the time of a step without waits, over that of
    a step of the service."""
    step = fact(results, f"4 {name} bf16 {case}", "step ms")
    busy = quotient(fact(results, f"4 {name} bf16 without waits", case), step)
    return None if busy is None else 1 - busy


def ratio(results, name, case):
    """Returns how many times as fast as transformers a case is."""
    own, peer = f"4 {name} bf16 {case}", f"4 {name} transformers {case}"
    rates = quotient(fact(results, own, "tokens/s"), fact(results, peer, "tokens/s"))
    return rates or quotient(fact(results, peer, "ms"), fact(results, own, "ms"))


class Aim(NamedTuple):
    """A limit of a number, and how it is computed."""

    text: str
    value: callable
    least: float | None = None
    most: float | None = None

    def is_reached(self, value):
        """Returns true if a value is within the limits."""
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    def row(self, results):
        """Returns a row of the table of aims."""
        value = self.value(results)
        if value is None:
            return f"| {self.text} | {self.limit()} | | not measured |"
        return f"| {self.text} | {self.limit()} | {value:.4g} | {'yes' if self.is_reached(value) else 'no'} |"

    def limit(self):
        """Returns the limits as text."""
        if self.least == self.most:
            return f"{self.least:g}"
        return f"at least {self.least:g}" if self.most is None else f"at most {self.most:g}"


def share(case):
    """Returns the value of an aim: the share of the floor that the large model reaches."""
    return lambda results: fact(results, f"{LARGE} bf16 {case}", "share of floor")


def int8_ratio(results):
    """Returns how many times as fast as bf16 int8 decodes one sequence."""
    own, other = (fact(results, f"{LARGE} {kind} 1 sequences", "tokens/s") for kind in ("int8", "bf16"))
    return quotient(own, other)


def waits(results):
    """Returns the waits per step that are furthest from one, in all cases of decode. None without a GPU."""
    found = [facts["waits per step"] for facts in results.values() if "waits per step" in facts]
    return max(found, key=lambda value: abs(value - 1)) if any(found) else None


def load_memory(results):
    """Returns the GiB without a file that the process has while it loads the large model."""
    return quotient(fact(results, f"{LARGE} bf16 load", "peak RssAnon"), GIB)


AIMS = [
    Aim("8 billion, bf16: share of the floor, 1 sequence", share("1 sequences"), least=0.6),
    Aim("8 billion, bf16: share of the floor, 32 sequences", share("32 sequences"), least=0.5),
    Aim("8 billion, bf16: share of the floor, 128 sequences", share("128 sequences"), least=0.5),
    Aim("8 billion, bf16: share of the floor, prompt of 4096", share("4096 tokens"), least=0.5),
    Aim("8 billion, bf16: idle share, 32 sequences", lambda it: idle(it, "qwen3-8b", "32 sequences"), most=0.1),
    Aim("8 billion, bf16: times transformers, 32 sequences", lambda it: ratio(it, "qwen3-8b", "32 sequences"), least=3),
    Aim("8 billion, int8: times bf16, 1 sequence", int8_ratio, least=1.5),
    Aim("waits per step of decode, the furthest from 1", waits, least=1, most=1),
    Aim("8 billion: GiB of RssAnon while loading", load_memory, most=2),
]


def aims(results):
    """Returns the table of aims."""
    return "\n".join(["| what | aim | measured | reached |", "|---|---|---|---|", *(aim.row(results) for aim in AIMS)])


def speeds(results):
    """Returns the table of speeds."""
    head = ["model", "weights", "case", "tokens/s or ms", "floor ms", "share of the floor"]
    head += ["idle share", "waits per step", "transformers", "ratio"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name in MODELS:
        for kind in ("bf16", "int8"):
            start = f"4 {name} {kind} "
            cases = [check.removeprefix(start) for check in results if check.startswith(start)]
            measured = [case for case in cases if fact(results, start + case, "share of floor") is not None]
            lines += [speed(results, name, kind, case) for case in measured]
    return "\n".join(lines)


def speed(results, name, kind, case):
    """Returns a row of the table of speeds."""
    own, peer = results[f"4 {name} {kind} {case}"], results.get(f"4 {name} transformers {case}", {})
    unit = "tokens/s" if "tokens/s" in own else "ms"
    share, times = number(idle(results, name, case)), number(ratio(results, name, case))
    if kind != "bf16":
        share, peer, times = None, {}, None
    cells = [name, kind, case, f"{own[unit]} {unit}", own["floor ms"], own["share of floor"], share]
    cells += [own.get("waits per step"), peer.get(unit), times]
    return "| " + " | ".join("" if cell is None else str(cell) for cell in cells) + " |"


def number(value):
    """Returns a number as text, or None."""
    return None if value is None else f"{value:.3g}"
