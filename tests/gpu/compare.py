"""Comparisons of log probabilities. A row has those of some tokens at one position, by id."""

from service import likeliest

# The tokens of a row that are compared: the likeliest ones of the exact computation.
COMPARED = 10


def rows(answer):
    """Returns a row for each position of a prompt but the first, and of its output."""
    return [likeliest(token) for token in [*answer.prompt, *answer.tokens]]


def distance(one, other):
    """Returns the largest difference between two rows that have the likeliest tokens. A token that is missing
    in a row is at most as likely as the row's last."""
    return max(_excess(one, other), _excess(other, one))


def _excess(row, other):
    least = min(other.values())
    return max(abs(value - other[id]) if id in other else max(value - least, 0.0) for id, value in row.items())


def shared(one, other):
    """Returns the pairs of tokens of two outputs, up to the first pair that differs."""
    for a, b in zip(one, other):
        yield a, b
        if a.id != b.id:
            return


def places(ids, prompt, exact, own):
    """Returns the pairs of a position and an id that are compared, for the prompt and for the output: each token
    of the prompt, and the exact computation's likeliest tokens in the output."""
    first = [(at, ids[at + 1]) for at in range(prompt - 1)]
    return first, [(at, id) for at in range(prompt - 1, len(own)) for id in _likeliest(exact[at]) if id in own[at]]


def _likeliest(row):
    return sorted(row, key=row.get, reverse=True)[:COMPARED]


def errors(found, exact):
    """Returns the differences of two lists of numbers."""
    return [abs(a - b) for a, b in zip(found, exact, strict=True)]


def values(table, wanted):
    """Returns the log probabilities of pairs of a position and an id."""
    return [table[at][id] for at, id in wanted]
