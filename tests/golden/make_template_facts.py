"""Remakes the expectations in template/*.json with Jinja2, as transformers calls it.

Each row of a fact is a template and its outcome (README.md). A row with the text `own` as third
item is not compared: its outcome differs from Jinja2 on purpose. The same holds for errors with the
engine's own wording, where Jinja2 may accept the template.

Run it without arguments; it prints the rows that it changes. Needs the packages of
tests/differential/requirements.txt.
"""

import json
import pathlib
import sys
import traceback

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "differential"))

import jinja2
import oracle

INPUT = json.loads((HERE / "template_input.json").read_text(encoding="utf8"))


def line_of(error):
    if isinstance(error, jinja2.TemplateSyntaxError):
        return error.lineno
    frames = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == "<template>"]
    return frames[-1] if frames else None


def outcome(template):
    """Returns `text` and the prompt; or the kind of failure, the error's message and its line."""
    try:
        oracle.chat_template_utils._compile_jinja_template(template)
    except Exception as error:  # also of an operation on constants
        return "refused", str(error), line_of(error)
    try:
        return "text", oracle.render({"template": template, **INPUT}), None
    except Exception as error:
        return "failed", str(error), line_of(error)


def remade(row):
    template, expected, *note = row
    kind, message, line = outcome(template)
    if note:
        return row
    if kind == "text":
        is_own = isinstance(expected, dict) and None in expected.values()
        return row if is_own else [template, message]
    if not isinstance(expected, dict):
        return [template, {kind: f"line {line}: {message}"}]
    (known,) = expected.values()
    if not isinstance(known, str):
        return row if kind in expected or known is None else [template, {kind: known}]
    known_line, _, known_message = known.partition(": ")
    is_same = kind in expected and message == known_message and line in (None, int(known_line.removeprefix("line ")))
    return row if is_same else [template, {kind: f"line {line}: {message}"}]


def written(rows):
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    return f"[\n{lines}\n]\n"


def main():
    for path in sorted((HERE / "template").glob("*.json")):
        rows = json.loads(path.read_text(encoding="utf8"))
        new = [remade(row) for row in rows]
        for before, after in zip(rows, new):
            if before != after:
                print(f"{path.stem}: {before} -> {after}")
        path.write_text(written(new), encoding="utf8")


if __name__ == "__main__":
    main()
