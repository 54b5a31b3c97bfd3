"""Writes random cases for oracle.py, one JSON object per line.

Usage: generate.py SEED COUNT snippets
       generate.py SEED COUNT conversations [CORPUS]

snippets: random templates over all of Jinja2's grammar and Python's types. Many of them fail, and
the errors must agree too.

conversations: chat templates with randomly changed conversations. The templates are the files in
`templates`, beside this script. CORPUS is a folder with further templates and conversations, in
templates/manifest.json and conversations/.
"""

import copy
import json
import pathlib
import random
import re
import sys

ARGS = {
    "i": 7, "z": 0, "neg": -3, "big": 123456789012345678901234567890, "f": 2.5, "g": 1e16, "h": -0.0, "t": True, "n": None,
    "s": "Hello World", "e": "", "u": "žluť ǆ İß\u00a0x", "ws": "  a\tb\n c \x1f", "q": "it's \"q\"", "html": "<b>&amp;'</b>",
    "num": " 42 ", "flt": "4.75", "lines": "one\ntwo\r\n\nthree", "csv": "a,b,,c",
    "l": [3, 1, 2], "ls": ["b", "A", "c", "a"], "el": [], "mix": [1, "1", 1.0, None, True, [2], {"k": 1}],
    "nest": [[1, [2, 3]], [], ["x"]],
    "d": {"b": 1, "a": 2, "items": [1], "x y": None}, "ed": {},
    "users": [{"name": "Zoe", "age": 31, "tags": ["x"]}, {"name": "adam", "age": 4}, {"name": "Bob", "age": 31, "tags": []}],
}
NAMES = [*ARGS, "undef", "messages", "tools", "x", "y"]
NAME = re.compile(rf"(?<!['\w])({'|'.join(NAMES)})(?!['\w])")
CONSTANTS = ["0", "1", "-1", "2", "3", "10", "0x1f", "1_000", "1.5", "2.0", "1e3", "1e-7", "''", "'a'", "'l'", "', '", "'%s'",
             "'%d-%s'", "'{}{}'", "'{0:>5}'", "true", "false", "none", "[]", "{}", "()", "(1,)", "[1, 'a']", "{'a': 1, 1: 2}",
             "(d.keys() <= ed.keys())", "(d.items() > ed.items())", "'\\n'", "'\\u00e9'", "\"'\"", "'x' 'y'"]
BINARY = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]
FILTERS = ["abs", "attr('name')", "batch(2)", "batch(2, 'x')", "capitalize", "center(9)", "count", "d('dd')", "default('', true)",
           "dictsort", "dictsort(by='value')", "dictsort(true, 'key', true)", "e", "escape", "filesizeformat", "filesizeformat(true)",
           "first", "float", "float(1.5)", "forceescape", "format(1)", "format('a', 'b')", "groupby('age')",
           "groupby('tags', default=[])", "indent", "indent(2, true)", "indent('> ', first=true, blank=true)", "int", "int(5)",
           "int(base=16)", "items", "join", "join(', ')", "join('-', 'name')", "last", "length", "list", "lower", "map('upper')",
           "map(attribute='name')", "map(attribute='tags', default='none')", "map('int')", "map('default', 'q')", "max", "min",
           "max(attribute='age')", "reject", "reject('none')", "rejectattr('tags')", "rejectattr('age', 'gt', 5)",
           "replace('l', 'LL')", "replace('', '-')", "replace('l', '', 1)", "reverse", "round", "round(1)", "round(1, 'floor')",
           "round(0, 'ceil')", "safe", "select", "select('string')", "select('odd')", "select('in', [1, 'a'])", "selectattr('tags')",
           "selectattr('name', 'equalto', 'Bob')", "slice(2)", "slice(3, 'f')", "sort", "sort(true)", "sort(attribute='age')",
           "sort(attribute='age,name', reverse=true)", "sort(case_sensitive=true)", "string", "striptags", "sum",
           "sum(attribute='age')", "sum(start=10)", "pprint", "title", "tojson", "tojson(indent=2)", "tojson(ensure_ascii=true)",
           "tojson(separators=(',', ':'))", "tojson(sort_keys=true)", "trim", "trim('H d')", "truncate(5)", "truncate(5, true)",
           "truncate(7, end='~', leeway=0)", "unique", "unique(true)", "unique(attribute='age')", "upper", "urlencode", "wordcount",
           "wordwrap(5)", "xmlattr", "nosuch"]
# Larger powers take Python hours. Roots of negative numbers are complex, which the engine rejects.
POWERS = ["0", "1", "2", "3", "-1", "true", "none", "'a'"]
TESTS = ["boolean", "callable", "defined", "divisibleby(2)", "divisibleby 3", "eq 1", "equalto('a')", "escaped", "even", "false",
         "filter", "float", "ge(1)", "greaterthan 2", "gt 1", "in [1, 2, 'a']", "in 'Hello'", "integer", "iterable", "le 2", "lower",
         "lt 3", "mapping", "ne 1", "none", "number", "odd", "sameas none", "sameas true", "sequence", "string", "test", "true",
         "undefined", "upper", "nosuch"]
METHODS = ["upper()", "lower()", "strip()", "strip('H')", "lstrip()", "rstrip('d ')", "split()", "split(',')", "split('l', 1)",
           "split(maxsplit=1)", "rsplit(' ', 1)", "rsplit(None, 1)", "splitlines()", "splitlines(true)", "replace('l', 'L')",
           "replace('l', 'L', 1)", "startswith('H')", "startswith(('a', 'H'))", "endswith('d')", "startswith('e', 1)", "find('o')",
           "rfind('o')", "find('l', 3, 5)", "index('o')", "count('l')", "count(1)", "title()", "capitalize()", "swapcase()",
           "casefold()", "isdigit()", "isalpha()", "isalnum()", "isspace()", "isupper()", "islower()", "istitle()", "isnumeric()",
           "isdecimal()", "isidentifier()", "isprintable()", "isascii()", "join(['a', 'b'])", "join([1])", "zfill(8)", "center(11, '*')",
           "ljust(12)", "rjust(12, '.')", "partition(' ')", "rpartition('o')", "removeprefix('He')", "removesuffix('ld')",
           "expandtabs(4)", "format(1, 'b')", "format(a=1)", "get('a')", "get('zz')", "get('zz', 5)", "keys()", "values()", "items()",
           "items()|list", "keys()|list", "copy()", "pop()", "append(1)", "update({})", "index(1)", "bit_length()", "is_integer()",
           "name", "items", "a", "__class__", "0", "nosuch()", "nosuch", "conjugate()", "real", "hex()", "translate({72: 'J', 101: none, 108: 108})",
           "translate(s.maketrans('lo', '01', 'W'))"]
INDEXES = ["0", "1", "-1", "'a'", "'items'", "99", "1:", ":1", "::-1", "1:3", "-2:", "::2", "none", "true", "1.0", "'name'", "0:0", "5:1:-1"]
TEXTS = ["", " ", "\n", "a", " b\n", "\n  ", "{ ", "} ", "# ", "\t"]


class Generator:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def pick(self, options):
        return self.random.choice(options)

    def atom(self):
        return self.pick(NAMES) if self.random.random() < 0.7 else self.pick(CONSTANTS)

    def expr(self, depth):
        if depth <= 0:
            return self.atom()
        kind = self.random.random()
        inner = self.expr(depth - 1)
        if kind < 0.30:
            return f"{inner}|{self.pick(FILTERS)}"
        if kind < 0.48:
            return f"{inner}.{self.pick(METHODS)}" if not inner[-1].isdigit() else f"({inner}).{self.pick(METHODS)}"
        if kind < 0.58:
            return f"({inner})[{self.index(inner)}]"
        if kind < 0.76:
            if self.random.random() < 0.05:
                return f"({inner} ** {self.pick(POWERS)})"
            other = self.expr(depth - 2)
            # The difference of two dict views is a set, whose printed order varies.
            has_view = any(view in inner + other for view in ("keys()", "items()"))
            joined = f"{inner} {self.pick([op for op in BINARY if not (has_view and op == '-')])} {other}"
            return f"({joined})" if self.random.random() < 0.5 else joined
        if kind < 0.86:
            return f"{inner} is {self.pick(['', 'not '])}{self.pick(TESTS)}"
        if kind < 0.90:
            return f"({inner} if {self.expr(depth - 2)} else {self.expr(depth - 2)})"
        if kind < 0.92:
            return f"({inner} if {self.expr(depth - 2)})"
        if kind < 0.94:
            return self.pick(["not ", "-", "+"]) + inner
        if kind < 0.96:
            return f"[{inner}, {self.expr(depth - 2)}]"
        if kind < 0.98:
            return f"{{'k': {inner}, {self.atom()}: 2}}"
        return self.pick([f"range({inner})|list", f"dict({inner})", f"namespace(a={inner}).a", f"({inner}, {self.atom()})", f"dict(a={inner})",
                          f"cycler({inner}, 2).next()", f"joiner({inner})()"])

    def index(self, inner):
        return self.pick(INDEXES)

    def tag(self, body):
        return "{%" + self.pick(["", "-", "+"]) + f" {body} " + self.pick(["", "-", "+"]) + "%}"

    def output(self):
        return "{{" + self.pick(["", "-"]) + f" {self.expr(self.random.randint(0, 3))} " + self.pick(["", "-"]) + "}}"

    def target(self):
        return self.pick(["x", "y", "x, y", "z", "ns.a"])

    def body(self, depth):
        return "".join(self.pick(TEXTS) + self.statement(depth) for _ in range(self.random.randint(1, 3))) + self.pick(TEXTS)

    def statement(self, depth):
        kind = self.random.random()
        if depth <= 0 or kind < 0.40:
            return self.output()
        inner = self.body(depth - 1)
        expr = self.expr(self.random.randint(0, 2))
        if kind < 0.52:
            return self.tag(f"set {self.target()} = {expr}")
        if kind < 0.62:
            other = self.tag("else") + self.body(depth - 1) if self.random.random() < 0.4 else ""
            return self.tag(f"if {expr}") + inner + other + self.tag("endif")
        if kind < 0.80:
            return self.loop(expr, inner, depth)
        if kind < 0.85:
            return self.tag("set " + self.pick(["x", "y", "y|upper", "ns.a"])) + inner + self.tag("endset")
        if kind < 0.90:
            signature = self.pick(["", "x", "x, y=1", "x=2, y=x"])
            call = self.pick(["m()", "m(1)", "m(1, 2)", "m(x=3)", "m(y=4)", f"m({expr})"])
            special = self.pick(["", "{{ varargs }}", "{{ kwargs }}", "{{ caller() if caller }}"])
            return self.tag(f"macro m({signature})") + inner + special + self.tag("endmacro") + "{{ " + call + " }}"
        if kind < 0.93:
            return self.tag(f"with x = {expr}, y = x") + inner + self.tag("endwith")
        if kind < 0.95:
            return self.tag("filter " + self.pick(["upper", "trim|length", "replace('a', x)", "indent"])) + inner + self.tag("endfilter")
        if kind < 0.97:
            return self.tag("generation") + inner + self.tag("endgeneration")
        if kind < 0.98:
            return self.tag("raw") + "{{ x }} {% if\n" + self.tag("endraw")
        return "{#" + self.pick(["", "-"]) + " note " + self.pick(["", "-"]) + "#}"

    def loop(self, items, inner, depth):
        target = self.pick(["x", "y", "x, y"])
        condition = f" if {self.expr(1)}" if self.random.random() < 0.25 else ""
        extra = self.pick(["", "", "{{ loop.index }}", "{{ loop.last }}{{ loop.length }}", "{{ loop.previtem }}|{{ loop.nextitem }}",
                           "{{ loop.cycle('a', 'b') }}", "{{ loop.changed(x) }}", "{{ loop.revindex0 }}", "{{ loop.first }}{{ loop.depth }}"])
        leave = self.tag(f"if {self.expr(1)}") + self.tag(self.pick(["break", "continue"])) + self.tag("endif")
        leave = leave if self.random.random() < 0.3 else ""
        other = self.tag("else") + "E" if self.random.random() < 0.3 else ""
        return self.tag(f"for {target} in {items}{condition}") + extra + leave + inner + other + self.tag("endfor")

    def case(self):
        start = self.pick(["", "", "{% set ns = namespace(a=1) %}"])
        template = start + self.body(self.random.randint(0, 3))
        return {"template": template, "messages": [{"role": "user", "content": "hi"}], "args": ARGS}


STRANGE = [None, True, False, 0, 1, -1, 1.5, 1e16, 1e-7, 12345678901234567890123, "", " ", "\n", "x\ny", "  padded  ", "'\"\\", "<think>a</think>b",
           "\u00e9\u2028\u00a0", "\x1c\x85", "\U0001f600 \u0130\u00df\u03a3", "{{ x }}{% if %}", "<|im_end|></s>", "a\r\nb\tc",
           [], {}, ["a"], [{"type": "text", "text": "t"}], [{"type": "image"}], [{"type": "text"}, {"type": "audio", "text": None}, "s"],
           {"a": 1}, {"a": {"b": [1, None]}}, {"type": "object", "properties": {"q": {"type": ["string", "null"], "enum": ["a", 1]}}},
           [{"id": "c1", "function": {"name": "f", "arguments": {"x": [1.0, {"y": None}]}}}], [{"name": "f", "arguments": "{\"x\": 1}"}],
           "assistant", "user", "system", "tool", "developer", "USER", '{"k": 1}', [1, 2.0, None]]
KEYS = ["content", "role", "tool_calls", "name", "tool_call_id", "reasoning_content", "thinking", "reasoning", "type", "text", "function",
        "arguments", "parameters", "properties", "description", "id", "extra", "items", "get", "0"]
ARGUMENTS = ["enable_thinking", "thinking", "debug", "persona", "extra", "reasoning_effort", "date_string", "custom_tools", "documents_", "bos_token"]
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "weather in a <city>", "parameters": {
    "type": "object", "required": ["city"], "properties": {"city": {"type": "string", "description": "the city"},
                                                           "days": {"type": ["integer", "null"], "enum": [1, 2.5, None]}}}}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Paris", "days": 1}}}
CONVERSATIONS = [
    {"messages": [{"role": "user", "content": "Hi"}]},
    {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": " Hi\n"}, {"role": "assistant", "content": "Hello"},
                  {"role": "user", "content": "Bye"}]},
    {"messages": [{"role": "user", "content": "Weather?"}, {"role": "assistant", "content": None, "tool_calls": [CALL]},
                  {"role": "tool", "name": "get_weather", "tool_call_id": "call_1", "content": "12"},
                  {"role": "assistant", "content": "12 degrees", "reasoning_content": "It\nsays 12."}], "tools": [TOOL]},
    {"messages": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is this?"}]}],
     "documents": [{"title": "a", "text": "b"}], "template_args": {"enable_thinking": False}},
]


class Mutator:
    def __init__(self, seed, corpus):
        self.random = random.Random(seed)
        self.corpus = corpus

    def containers(self, value):
        """Yields all dicts and lists in a value, including the value itself."""
        if isinstance(value, (dict, list)):
            yield value
            for item in value.values() if isinstance(value, dict) else value:
                yield from self.containers(item)

    def strange(self):
        return copy.deepcopy(self.random.choice(STRANGE))

    def mutate(self, value):
        target = self.random.choice(list(self.containers(value)))
        kind = self.random.random()
        if isinstance(target, dict):
            if kind < 0.3 and target:
                del target[self.random.choice(list(target))]
            elif kind < 0.7 and target:
                target[self.random.choice(list(target))] = self.strange()
            else:
                target[self.random.choice(KEYS)] = self.strange()
        elif kind < 0.25 and target:
            del target[self.random.randrange(len(target))]
        elif kind < 0.5 and target:
            target.insert(self.random.randrange(len(target)), copy.deepcopy(self.random.choice(target)))
        elif kind < 0.7 and len(target) > 1:
            self.random.shuffle(target)
        else:
            target.append(self.strange())

    def objects(self):
        """Returns a list of irregular objects, for tools and documents."""
        return [item if isinstance(item, dict) else {"function": item} for item in (self.strange() for _ in range(self.random.randint(0, 2)))]

    def extend(self, conversation):
        """Adds parts that the conversation lacks."""
        if self.random.random() < 0.1:
            conversation.setdefault("tools", [copy.deepcopy(TOOL)] + self.objects())
        if self.random.random() < 0.05:
            conversation.setdefault("documents", self.objects())
        if self.random.random() < 0.2:
            arguments = conversation.get("template_args") or {}
            conversation["template_args"] = {**arguments, self.random.choice(ARGUMENTS): self.strange()}

    def case(self):
        template, special_tokens = self.random.choice(self.corpus.templates)
        conversation = copy.deepcopy(self.random.choice(self.corpus.conversations))
        self.extend(conversation)
        parts = [conversation["messages"]] * 3 + [conversation.get(key) for key in ("tools", "documents", "template_args")]
        for _ in range(self.random.randint(0, 4)):
            self.mutate(self.random.choice([part for part in parts if part] or [conversation["messages"]]))
        if self.random.random() < 0.1:
            conversation["continue_final_message"] = True
            conversation["add_generation_prompt"] = False
        elif self.random.random() < 0.3:
            conversation["add_generation_prompt"] = self.random.random() < 0.5
            conversation["continue_final_message"] = False
        # transformers reads a list in place of the first message as a batch of conversations.
        conversation["messages"] = [message for message in conversation["messages"] if not isinstance(message, list)] or [{}]
        keys = ("messages", "tools", "documents", "add_generation_prompt", "continue_final_message")
        case = {key: conversation[key] for key in keys if key in conversation}
        return {**case, "args": conversation.get("template_args"), "template": template, "special_tokens": special_tokens}


class Corpus:
    """The templates and conversations of the project and of an optional folder."""

    def __init__(self, folder=None):
        own = sorted((pathlib.Path(__file__).parent / "templates").glob("*.jinja"))
        self.templates = [(path.read_text(), {"bos_token": "<s>", "eos_token": "</s>"}) for path in own]
        self.conversations = list(CONVERSATIONS)
        if folder:
            self.add(pathlib.Path(folder))

    def add(self, folder):
        manifest = json.loads((folder / "templates/manifest.json").read_text())
        self.templates += [(self.source(folder, entry), self.special_tokens(entry)) for entry in manifest]
        self.conversations += [json.loads(path.read_text()) for path in sorted((folder / "conversations").glob("*.json"))]

    @staticmethod
    def source(folder, entry):
        return (folder / f"templates/{entry['slug']}.jinja").read_bytes().decode()

    @staticmethod
    def special_tokens(entry):
        return {key: entry[key] for key in ("bos_token", "eos_token") if entry.get(key)}


def main():
    seed, count, kind = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    corpus = Corpus(*sys.argv[4:5]) if kind == "conversations" else None
    for number in range(count):
        name = f"{seed}:{number}"
        case = Mutator(name, corpus).case() if corpus else Generator(name).case()
        print(json.dumps(case))


if __name__ == "__main__":
    main()
