"""Texts and lists that the vectors write in short."""


def expanded(found):
    """Returns the text or list that `{"before", "repeat", "count", "after"}` means, or any other object unchanged."""
    if "repeat" not in found:
        return found
    part = found["repeat"]
    return found.get("before", part[:0]) + part * found["count"] + found.get("after", part[:0])
