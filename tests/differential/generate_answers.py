"""Makes random response templates, with answers, prompts and tools, for answers.py.

A template is random, or one of a corpus: the built-in rules that transformers can load, the templates of
transformers' server, and those of `golden/response_templates`. Some templates have faults at random places.
Answers consist of parts of the template's anchors, values for its content parsers, and random text.

No pattern is of one kind whose partial matches differ on purpose. `parse/engine/pattern.rs` lists these kinds. Slow
patterns never meet long texts, so that Python's backtracking ends soon.
"""

import copy
import json
import random
import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
RULES = REPOSITORY / "render-svc/src/parse/rules"
GOLDEN_TEMPLATES = REPOSITORY / "tests/golden/response_templates"
ANSWERS_PER_TEMPLATE = 10

MARKS = [
    "<think>", "</think>", "<tool_call>", "</tool_call>", "<|im_end|>", "[CALLS]", "<a>", "<ab>", "<abc>", "</a>", "a",
    "aa", "ab", "aab", "ba", "\n", "\n\n", "```", "<|", "|>", "<｜x｜>", "é", "ß", "😀", "<|\"|>", "[", "]", "::", "(.*)",
    "#"
]
WORDS = [
    "Hi", "hello world", "x", "", " ", "\n", "\n\n", "\t", "\u00a0", "\x1c", "\x85", "\u2028", "\u3000", "e\u0301",
    "中文", "\U0001f469\u200d\U0001f467", "İ", "ſ", "K", "<", ">", "</", "|>", "{", "}", "\"", "'", "\\", ",", ":", "=",
    "null", "\r\n", "\ufeff", "\x00", "\x01", "\x02", "\u0301", "a:b", "k=v;", "\ufffd", "&lt;", "{content}"
]
NUMBERS = [
    "0", "-0", "1", " 42 ", "+7", "1_000", "1__0", "_1", "007", "3.0", "3.5", ".5", "5.", "1e3", "1E400", "-1e-7",
    "inf", "-Infinity", "nan", "١٢", "３.５", "12345678901234567890123", "1e22", "1e23", "0x1f", "1 2", "--1", "\x1c5",
    "𝟗", "²", "1.", "1e", "1_0.0_1", "9007199254740993"
]
BOOLS = ["true", "True", " TRUE\n", "1", "0", "false", "False", "yes", "None", "null", "NULL", "tRuE"]
JSON_TEXTS = [
    "", "{}", "[]", "null", "NaN", "-Infinity", "1e400", "-0", "-0.0", "1.0", "1E5", "01", "'a'", "{a:1}", "{\"a\":1,}",
    "[1,]", "{\"a\" 1}", "\"\\ud83d\\ude00\"", "\"\\ud800\"", "{\"a\": \"\\udc00\", \"a\": 1}", "\"\\x\"", "\"a\nb\"",
    "\"a\tb\"", "\u00a0{}", "{} x", "{\"a\":1}{\"b\":2}", "tru", "[1, 2", "{\"a\": {\"b\": [1, {}]}}", "\ufeff{}",
    "[[[[[[[[[[]]]]]]]]]]", "{\"a\":1,\"a\":2}", "123456789012345678901234567890", "\"\\u00e9\\n\\/\"", "// c\n{}",
    "{\"name\": \"get\"}", "[\"\\u12\"]", "\"\x7f\"", "{\"\": 0}", "-", "1.", ".5", "+1"
]
STRANGE = [
    None, True, False, 0, 1, 2, 1.0, 1.5, "", "x", "{content}", "{name}", "a{content}", [], [1], ["a", ""], [None], {},
    {"a": 1}, ["<a>"], "text", "json", {"name": "json"}, {"strip": False}, "(", "a|", "\\s*"
]
INVALID_PATTERNS = [
    "(", ")", "a)", "[", "[a", "a**", "*a", "+", "(?P<a", "(?P<1>a)", "\\", "(?<n>a)(", "a{2,1}", "[b-a]", "(?", "(?z)"
]
REFUSED_PATTERNS = [
    "(?=a)b", "(?!a)b", "(?<=a)b", "(?<!a)b", r"(a)\1", r"(?P<n>a)(?P=n)", "(?>a)b", "a*+b", "a++", "a?+b",
    r"(a)?(?(1)b|c)", "(?|a|b)", r"\Ga", r"a\Kb", r"\X", r"\R", r"(?b)a", "(?r)ab", "(?:ab){e<=1}", r"\N{DIGIT ONE}",
    r"(?R)?a", r"a(*PRUNE)b"
]
TYPES = ["string", "integer", "number", "boolean", "null", "object", "array", "any"]
# Texts that a schema can cast.
CASTABLE = [
    "3.0", "5.", "3", " 7 ", "\x1c5", "1e3", "1_0", "١٢", "nan", "inf", "-0.0", "1e22", "true", "FALSE", " True ", "1",
    "0", "None", " null ", "Null", "[1]", "{\"a\": 1}", "[", "{}", " [] ", "NaN", "x", "", "[\"\\ud800\"]", "2.5",
    "1E400"
]
NAMES = ["get", "get", "f", "é"]
KEYS = ["a", "b", "city", "days", "name", "arguments", "x y", "é", "1"]
# Patterns of parts of an object, with a format of texts that match.
TAGS = [(r"<parameter=(?P<key>[^>\n]+)>\s*(?P<value>.*?)\s*</parameter>", "<parameter={}>\n{}\n</parameter>"),
        (r"<arg_key>(?P<key>.*?)</arg_key>\s*<arg_value>(?P<value>.*?)</arg_value>",
         "<arg_key>{}</arg_key>\n<arg_value>{}</arg_value>"), (r"(?P<key>\w+)=(?P<value>\w*)", "{}={} "),
        (r'<(?P<key>\w+)(?: type="\w+")?>(?P<value>[^<]*)</\w+>', '<{0} type="s">{1}</{0}>'),
        (r"(?P<key>\w+)(?:=(?P<value>\d+))?;", "{}={};"), (r"(?P<key>\w)?:(?P<value>\w*)", "{}:{}"),
        (r"<(?P<key>\w+)/>", "<{}/>{}"), (r"<(?P<value>\w+)>", "{}<{}>"), (r"(?P<key>\w*)(?P<value>\d*)", "{}{}"),
        (r"(?P<key>a?)", "{}{}"), (r"(?P<key>a|ab)(?P<value>c|bcd)", "{}{}"),
        (r"(?i)<K>(?P<key>[^<]*)<V>(?P<value>[^<]*)", "<k>{}<v>{}"), (r"^(?P<key>\w+): *(?P<value>.*)$", "{}: {}\n"),
        (r"(?m)^(?P<key>\w+): *(?P<value>[^\n]*)$", "{}: {}\n"), (r"\b(?P<key>\w+)\b.(?P<value>)", "{} {}"),
        ("(?P<key>", "{}{}")]


class Chance(random.Random):
    """Random numbers in the forms that the makers need."""

    def is_in(self, percent):
        return self.random() * 100 < percent

    def many(self, least, most):
        return range(self.randint(least, most))

    def weighted(self, weights):
        return self.choices(list(weights), list(weights.values()))[0]


class Patterns:
    """Random patterns, each with a function that returns a text which it matches, or almost."""

    def __init__(self, chance):
        self.chance = chance
        self.is_lazy = self.has_assertion = self.has_group_repeat = False

    def literal(self):
        text = self.chance.choice(MARKS)
        return re.escape(text), [text]

    def space(self):
        source = self.chance.choice([r"\s*", r"\s+", r"[ \t]*", r"\n?", r"\s{0,2}", "[ ]*\\n*"])
        return source, ["", "\n", " \n", "  ", "\u00a0"]

    def either(self):
        marks = self.chance.sample(MARKS, self.chance.randint(2, 3))
        if self.chance.is_in(30):
            start = self.chance.choice(MARKS)
            marks = [start + mark for mark in marks]
        return "(?:" + "|".join(map(re.escape, marks)) + ")", marks

    def characters(self):
        return self.chance.choice([(r"\w+", ["f", "get", "é1"]), (r"\d{1,3}", ["1", "12", "1234"]),
                                   ("[a-c]+", ["a", "abc"]), ("[^>]*", ["", "x y"]), ("a{2}", ["aa", "aaa"]),
                                   (r"[\w-]*\d", ["a-1", "2"]), ("ab?", ["a", "ab"]), (r"\p{L}+", ["ä", "a"]),
                                   ("[[:alpha:]]", ["q"]), ("[<a]", ["<", "a"]), (r'"[^"]*"', ['"x"', '""']),
                                   (r"[^\n]*\n", ["x\n", "\n"]), (r"(?:\n|<)", ["\n", "<"]),
                                   (r"[\w.-]+:\d+", ["a.b:1"])])

    def named(self):
        name = self.chance.choice(["name", "name", "n2", "a", "content"])
        body = self.chance.choice([
            r"\w+", r"[^>\n]+", r"[^{]*", r"\d+", "a|ab", r"\w*", r"[\w.-]+",
            ".*?" if not self.has_assertion else r"\S+"
        ])
        self.is_lazy |= body == ".*?"
        text = self.chance.choice([*NAMES, "a", "ab", "12", ""])
        if body != ".*?" or self.chance.is_in(50):
            optional = self.chance.is_in(15) and not self.has_assertion
            self.has_group_repeat |= optional
            return f"(?P<{name}>{body})" + "?" * optional, [text]
        return f"(?P<{name}>{body})" + re.escape(mark := self.chance.choice(MARKS)), [text + mark]

    def repeated(self):
        if self.has_assertion:
            return self.literal()
        self.has_group_repeat = True
        mark = self.chance.choice(MARKS)
        return f"(?:{re.escape(mark)})" + self.chance.choice("+*?"), [mark, mark * 2, ""]

    def lazy(self):
        if self.has_assertion:
            return self.literal()
        self.is_lazy = True
        repeated, text = self.chance.choice([("[^<]*?", "x\n"), (".*?", "x"), (r"\s*?", " \n"), (r"\w+?", "ab"),
                                             ("[^a]+?", "<|"), ("[abc]*?", "ab"), ("a+?", "aa"), (r"[^\n]*?", " <")])
        source, texts = self.chance.choice([self.literal, self.literal, self.either, self.characters, self.space])()
        return repeated + source, [text + after for after in texts] + texts + [text]

    def ending(self):
        if self.has_group_repeat or self.is_lazy:
            return "", [""]
        self.has_assertion = True
        mark = self.chance.choice(MARKS)
        escaped = re.escape(mark)
        return self.chance.choice([("$", [""]), (r"\Z", [""]), (f"(?:{escaped}|$)", [mark, ""]),
                                   (f"(?:{escaped}|\\Z)", [mark, ""]), (r"\b", [" "]), (r"(?:\n|$)", ["\n"]),
                                   (r"\B", [""]), ("", [""])])

    def pattern(self):
        """Returns a pattern and a function that returns texts."""
        if self.chance.is_in(6):
            source = self.chance.choice(
                ["(?:)", "$", r"\Z", r"\s*", "a*", "a?", "^", r"\A", "(?:<a>)?", r"\b", "(?m)^", r"(?m)$", "|a", "a|"])
            return source, lambda: self.chance.choice(["", "a", "\n"])
        kinds = {"literal": 40, "space": 15, "either": 12, "characters": 12, "named": 15, "repeated": 5, "lazy": 9}
        parts = [
            getattr(self, self.chance.weighted(kinds))() for _ in self.chance.many(0, self.chance.choice([2, 2, 4]))
        ]
        parts.insert(self.chance.randint(0, len(parts)), self.literal())
        if self.chance.is_in(15):
            parts.append(self.ending())
        source = "".join(part for part, _ in parts)
        if source.startswith((".", "(?P<name>.", "(?P<n2>.", "(?P<a>.", "(?P<content>.")):
            source = "<" + source
            parts.insert(0, ("", ["<"]))
        if self.chance.is_in(5) and not self.is_lazy and r"\p" not in source and "[[:" not in source:
            source = "(?i)" + source
        elif self.chance.is_in(3) and " " not in source and "#" not in source and "\n" not in source:
            source = "(?x) " + source
        return source, lambda: "".join(self.chance.choice(texts) for _, texts in parts)


class Values:
    """Random texts for the content parsers."""

    def __init__(self, chance):
        self.chance = chance

    def word(self):
        return self.chance.choice(WORDS)

    def words(self):
        return "".join(self.word() for _ in self.chance.many(0, 4))

    def scalar_text(self):
        if self.chance.is_in(50):
            return self.chance.choice(CASTABLE)
        return self.chance.choice([*NUMBERS, *BOOLS, *WORDS, *JSON_TEXTS[:34]])

    def value(self, depth=2):
        kind = self.chance.random()
        if depth == 0 or kind < 0.55:
            texts = [self.scalar_text(), self.scalar_text(), self.words()]
            return self.chance.choice([None, True, 0, -1, 1.5, 1e16, 10**25, "", "x", *texts])
        if kind < 0.7:
            texts = [self.scalar_text() for _ in self.chance.many(0, 3)]
            return [self.value(depth - 1) if self.chance.is_in(40) else text for text in texts]
        return {self.chance.choice(KEYS): self.value(depth - 1) for _ in self.chance.many(0, 3)}

    def arguments(self):
        keys = [self.chance.choice(KEYS) for _ in self.chance.many(0, 6)]
        return {key: self.scalar_text() if self.chance.is_in(70) else self.value(1) for key in keys}

    def call(self):
        name = self.chance.choice(NAMES) if self.chance.is_in(95) else self.value(1)
        call = {"name": name, "arguments": self.arguments() if self.chance.is_in(85) else self.value()}
        return {"function": call} if self.chance.is_in(15) else call

    def json(self, args, kinds=None):
        """Returns a text for the parser `json`."""
        if self.chance.is_in(15):
            return self.chance.choice(JSON_TEXTS)
        value = self.chance.weighted(kinds or {"call": 45, "calls": 15, "arguments": 25, "value": 15})
        value = [self.call() for _ in self.chance.many(0, 3)] if value == "calls" else getattr(self, value)()
        text = json.dumps(value,
                          ensure_ascii=self.chance.is_in(40),
                          indent=self.chance.choice([None, None, 1]),
                          separators=self.chance.choice([None, (",", ":")]))
        if args.get("unquoted_keys") and self.chance.is_in(80):
            text = re.sub(r'"(\w+)":', r"\1:", text)
        for pair in args.get("string_delims") or []:
            if isinstance(pair, list) and len(pair) == 2 and self.chance.is_in(70):
                text = re.sub(r'"([^"\\]*)"', lambda m, pair=pair: f"{pair[0]}{m[1]}{pair[1]}", text)
        return self.chance.choice(["", "", "\n", " "]) + text + self.chance.choice(["", "", "\n", "\u00a0"])

    def tags(self, args):
        form = next((form for tag, form in TAGS if tag == args.get("tag_pattern")), "<{}>{}")
        parser = args.get("value_parser")
        entries = [form.format(self.chance.choice(KEYS), self.of(parser)) for _ in self.chance.many(0, 4)]
        return "".join(entry + self.chance.choice(["", "\n", self.word()]) for entry in entries)

    def lines(self, args):
        line, pair = args.get("line_sep", "\n"), args.get("kv_sep", ":")
        line, pair = line if isinstance(line, str) else "\n", pair if isinstance(pair, str) else ":"
        parser = args.get("value_parser")
        lines = [
            self.chance.choice(KEYS) + self.chance.choice([pair, f" {pair} ", ""]) + self.of(parser)
            for _ in self.chance.many(0, 4)
        ]
        return line.join(lines)

    def of(self, parser):
        if not isinstance(parser, dict):
            return self.scalar_text()
        return self.body(parser.get("name", "text"), parser.get("args"))

    def body(self, content, args):
        """Returns a text for a content parser, or another text."""
        args = args if isinstance(args, dict) else {}
        if self.chance.is_in(8):
            return self.words()
        makers = {
            "json": self.json, "xml-inline": self.tags, "kv-lines": self.lines,
            "int": lambda _: self.chance.choice(NUMBERS), "float": lambda _: self.chance.choice(NUMBERS),
            "bool": lambda _: self.chance.choice(BOOLS)
        }
        return makers[content](args) if isinstance(content, str) and content in makers else self.words()


class Templates:
    """Random response templates."""

    def __init__(self, chance):
        self.chance = chance

    def anchor(self, field, key):
        """Adds an anchor to a field, and returns a function for its texts and the names of its groups."""
        chance = self.chance
        kind = chance.random()
        if kind < 0.4:
            field[key] = text = chance.choice(MARKS)
            return lambda: text, []
        if kind < 0.55:
            field[key] = texts = chance.choices(MARKS, k=chance.randint(1, 3))
            return lambda: chance.choice(texts), []
        source, text = Patterns(chance).pattern() if chance.is_in(99.5) else (chance.choice(INVALID_PATTERNS),
                                                                              lambda: "a")
        field[f"{key}_pattern"] = source
        return text, re.findall(r"\?P<(\w+)>", source)

    def value_parser(self, depth):
        if self.chance.is_in(40):
            return {}
        if self.chance.is_in(5):
            return {"value_parser": self.chance.choice(STRANGE)}
        name = self.chance.choice(["text", "json", "json", "int", "float", "bool", "xml-inline", "kv-lines", "nosuch"])
        parser = {"name": name, "args": self.args(name, depth + 1)}
        for key in ("name", "args"):
            if self.chance.is_in(10):
                del parser[key]
        return {"value_parser": parser}

    def args(self, content, depth=0):
        """Returns random arguments for a content parser."""
        chance, flags = self.chance, {}
        for flag in ("strip", "unquoted_keys", "allow_non_json", "merge_duplicates"):
            if chance.is_in({"strip": 25, "allow_non_json": 45}.get(flag, 35)):
                flags[flag] = chance.choice([True, True, False]) if chance.is_in(95) else chance.choice(STRANGE)
        if content == "json" and chance.is_in(30):
            pairs = [["<|\"|>", "<|\"|>"], ["'", "'"], ["`", "´"], ["<s>", "</s>"], ["", ""], ["", "x"], ["\"", "\""],
                     "ab", [1, 2], ["a"]]
            weights = [10, 10, 5, 5, 1, 1, 2, 1, 1, 1]
            flags["string_delims"] = chance.choices(pairs, weights, k=chance.choice([1, 1, 2]))
        if content == "xml-inline" and chance.is_in(98):
            flags["tag_pattern"] = chance.choice(TAGS[:5] + TAGS)[0] if chance.is_in(97) else chance.choice(STRANGE)
        if content == "kv-lines":
            flags |= {"line_sep": chance.choice([";", "\n\n", ",", "", None, 5, "<br>"])} if chance.is_in(40) else {}
            flags |= {"kv_sep": chance.choice(["=", "->", " ", "", None, "::"])} if chance.is_in(40) else {}
        if content in ("xml-inline", "kv-lines") and depth < 2:
            flags |= self.value_parser(depth)
        return flags

    def transform(self, names, depth=2):
        """Returns a random transform. Some placeholders have no value, and some are refused."""
        chance = self.chance
        if chance.is_in(50):
            name = next(iter(names), "name")
            function = {"name": f"{{{name}}}", "arguments": "{content}"} if name in names else "{content}"
            return {"type": "function", "function": function}
        paths = [
            "content", "content", "content.a", "content.name", "content.arguments.a", "name", "arguments", "a", "é",
            *names
        ]
        kind = chance.random()
        if depth == 0 or kind < 0.6:
            return f"{{{chance.choice(paths)}}}" if chance.is_in(96) else chance.choice(
                ["x{content}", "{content}\n", "{}", "{a b}", "{a.}", "{{content}}"])
        if kind < 0.7:
            return chance.choice([None, 1, 2.5, "text", True, "", "{", [], {}])
        if kind < 0.8:
            return [self.transform(names, depth - 1) for _ in chance.many(0, 3)]
        return {chance.choice(["function", *KEYS]): self.transform(names, depth - 1) for _ in chance.many(0, 3)}

    def field(self, is_implicit):
        """Returns a field, and functions for the texts of its opening, its body and its closing."""
        chance, field, names = self.chance, {}, []
        opening = closing = lambda: ""
        if not is_implicit:
            opening, names = self.anchor(field, "open")
        if chance.is_in(50 if is_implicit else 90):
            closing, more = self.anchor(field, "close")
            # The captures of a closing are no part of a transform's scope.
            names = names + more if chance.is_in(5) else names
            if more and not names and chance.is_in(90):
                names = more
        weights = {"text": 60, "json": 10} if is_implicit else {
            "text": 25, "json": 35, "xml-inline": 20, "kv-lines": 8, "int": 3, "float": 3, "bool": 3
        }
        content = chance.weighted(weights)
        if content != "text" or chance.is_in(30):
            field["content"] = content
        if chance.is_in(70) or content == "xml-inline":
            field["content_args"] = self.args(content)
        if names and chance.is_in(96) or chance.is_in(25 if content != "text" else 5):
            field["transform"] = self.transform(names)
            field |= {"transform_each": chance.is_in(80)} if content == "json" and chance.is_in(30) else {}
        if chance.is_in(50):
            field["repeats"] = chance.is_in(95)
            has_join = chance.is_in(50 if content == "text" else 5)
            field |= {"join": chance.choice(["", "\n", ", ", None])} if has_join else {}
        field |= {"optional": chance.is_in(50)} if chance.is_in(15) else {}
        values, args = Values(chance), field.get("content_args")
        if field.get("transform_each"):
            return field, (opening, lambda: values.json({}, {"calls": 95, "value": 5}), closing)
        return field, (opening, lambda: values.body(content, args), closing)

    def template(self):
        """Returns a template, functions for the texts of its regions, and a function for its start."""
        chance, fields, regions = self.chance, {}, []
        names = chance.sample(["content", "reasoning_content", "tool_calls", "x", "role", "é"], chance.randint(1, 4))
        implicit = chance.choice([names[-1], names[0], None]) if chance.is_in(98) else "content"
        for name in names:
            fields[name], region = self.field(name == implicit)
            regions.append(region)
        defaults = {
            chance.choice(["role", *names]): chance.choice(
                ["assistant", "", None, [], ["a"], {}, 5, "x", [1, {"a": []}]])
            for _ in chance.many(0, 2)
        }
        template = {"fields": fields}
        start, _ = self.anchor(template, "start_anchor")
        template |= {"version": 1} if chance.is_in(50) else {}
        template |= {"defaults": defaults} if chance.is_in(70) else {}
        items = list(template.items())
        chance.shuffle(items)
        return dict(items), regions, start


class Corpus:
    """Real templates with answers that they can read."""

    def __init__(self, fallbacks):
        golden = [json.loads(path.read_text()) for path in sorted(GOLDEN_TEMPLATES.glob("*.json"))]
        self.answers = [answer for model in golden for answer in model["answers"]]
        self.entries = [(model["template"], model["answers"], model["prompt"]) for model in golden]
        for path in sorted(RULES.glob("*.json")):
            source = path.read_text()
            if '-calls"' not in source and "json_group" not in source:
                rules = json.loads(source)
                self.entries.append((rules, self.readable(rules), ""))
        self.entries += [(template, self.readable(template), "") for template in fallbacks]

    def readable(self, template):
        """Returns the answers that contain a part of a template's anchors."""
        anchors = [text for text in self.strings(template) if len(text) > 2]
        marks = {mark for text in anchors for mark in re.findall(r"[\w｜|▁]{4,}", text.replace("\\", ""))}
        return [answer for answer in self.answers if any(mark in answer for mark in marks)] or self.answers

    def strings(self, value):
        if isinstance(value, str):
            yield value
        elif isinstance(value, (dict, list)):
            for item in value.values() if isinstance(value, dict) else value:
                yield from self.strings(item)


class Answers:
    """Random answers, prompts and tools for a template."""

    def __init__(self, chance, corpus):
        self.chance = chance
        self.corpus = corpus
        self.values = Values(chance)

    def faulty(self, text, fragments):
        """Returns a text with some parts missing, twice, or in another place."""
        for _ in self.chance.many(1, 3):
            at = self.chance.randint(0, len(text))
            end = min(len(text), at + self.chance.choice([0, 1, 2, 5, 12]))
            change = self.chance.random()
            if change < 0.5:
                part = self.chance.choice(fragments) if fragments and self.chance.is_in(50) else self.values.word()
                text = text[:at] + part[:self.chance.choice([1, 2, 99])] + text[at:]
            elif change < 0.8:
                text = text[:at] + text[end:]
            else:
                text = text[:end] + text[at:]
        return text

    def of_regions(self, regions):
        """Returns a text for regions, which has most parts at their places."""
        text = ""
        for _ in self.chance.many(0, 4):
            text += self.values.words() if self.chance.is_in(40) else ""
            parts = [part() for part in self.chance.choice(regions)]
            parts = [part for part in parts if self.chance.is_in(95)]
            parts = [part[:self.chance.randint(0, len(part))] if self.chance.is_in(3) else part for part in parts]
            text += "".join(parts)
        return text

    def pieces(self, text):
        kind = self.chance.random()
        if kind < 0.25:
            return [text]
        if kind < 0.5:
            return list(text)
        at, pieces = 0, []
        while at < len(text):
            size = self.chance.choice([0, 1, 1, 2, 3, 5, 8, 20])
            pieces.append(text[at:at + size])
            at += size
        return pieces

    def schema(self, depth=1):
        chance = self.chance
        schema = {"type": chance.choice([chance.choice(TYPES), chance.sample(TYPES, 2)])} if chance.is_in(85) else {}
        for union in ("anyOf", "oneOf"):
            if depth and chance.is_in(25):
                schemas = [self.schema(depth - 1) for _ in chance.many(0, 3)]
                schema[union] = schemas if chance.is_in(96) else chance.choice(STRANGE)
        schema |= {"nullable": chance.choice([True, True, False, "x", 0])} if chance.is_in(10) else {}
        return schema if chance.is_in(97) else chance.choice(STRANGE)

    def tools(self):
        chance, tools = self.chance, []
        for _ in chance.many(1, 3):
            properties = {key: self.schema() for key in KEYS if chance.is_in(60)}
            tool = {"name": chance.choice(NAMES), "parameters": {"type": "object", "properties": properties}}
            if chance.is_in(5):
                tool[chance.choice(["name", "parameters"])] = chance.choice(STRANGE)
            tool = {"type": "function", "function": tool} if chance.is_in(80) else tool
            tools.append(tool if chance.is_in(98) else chance.choice(STRANGE))
        return tools

    def prompt(self, start, begin):
        """Returns a prompt whose end can be the beginning of an answer."""
        if self.chance.is_in(15):
            return self.chance.choice(["", self.values.words()])
        text = "".join(self.values.words() + start() for _ in self.chance.many(1, 2))
        text += begin() if self.chance.is_in(50) else ""
        return text[:self.chance.randint(0, len(text))] if self.chance.is_in(10) else text

    def strange(self, template):
        """Puts a strange value at a random place of a template."""
        containers = [value for value in self.containers(template) if value]
        target = self.chance.choice(containers)
        if isinstance(target, list):
            target[self.chance.randrange(len(target))] = copy.deepcopy(self.chance.choice(STRANGE))
        elif self.chance.is_in(30):
            del target[self.chance.choice(list(target))]
        else:
            keys = [
                *target, "open", "close", "open_pattern", "content", "join", "transform", "transform_each", "version",
                "nosuch"
            ]
            target[self.chance.choice(keys)] = copy.deepcopy(self.chance.choice(STRANGE))

    def mix(self, template):
        """Adds fields of another template of the corpus to a template."""
        other, _, _ = self.chance.choice(self.corpus.entries)
        added = [(name, field) for name, field in other["fields"].items() if self.chance.is_in(50)]
        template["fields"] |= copy.deepcopy(dict(added))

    def containers(self, value):
        """Yields the lists and objects in a value, except in delimiters: Tandem takes only texts for these."""
        if isinstance(value, (dict, list)):
            yield value
            for key, item in value.items() if isinstance(value, dict) else enumerate(value):
                if key != "string_delims":
                    yield from self.containers(item)

    def of_corpus(self):
        """Returns a template of the corpus, with functions for an answer and a prompt."""
        template, answers, prompt = self.chance.choice(self.corpus.entries)
        fragments = [
            part for part in re.split(r"(<[^<>]*>|\[[A-Z_]+\]|\n|[{}\"])", self.chance.choice(answers)) if part
        ]

        def answer():
            text = self.chance.choice(answers) if self.chance.is_in(70) else "".join(
                self.chance.choices(fragments, k=self.chance.randint(0, 12)))
            return text if self.chance.is_in(25) else self.faulty(text, fragments)

        def begin():
            text = answer()
            return text[:self.chance.randint(0, len(text))]

        start = template.get("start_anchor", prompt)
        start = start if isinstance(start, str) else self.chance.choice(start)
        return template, answer, lambda: self.prompt(lambda: prompt or start, begin)

    def of_random(self):
        """Returns a random template, with functions for an answer and a prompt."""
        template, regions, start = Templates(self.chance).template()

        def answer():
            text = self.of_regions(regions)
            fragments = [part for region in regions for part in (region[0](), region[2]()) if part]
            return self.faulty(text, fragments) if self.chance.is_in(30) else text

        def begin():
            return self.chance.choice(regions)[0]() + self.values.words()

        return template, answer, lambda: self.prompt(start, begin)

    def of_calls(self):
        """Returns a template for calls with arguments to cast, and functions for an answer and a prompt."""
        chance, args = self.chance, {"merge_duplicates": self.chance.is_in(60)}
        content = chance.choice(["json", "xml-inline", "kv-lines"])
        if content == "xml-inline":
            tags = [*TAGS[:2], (r"<(?P<key>[^>]*)>(?P<value>[^<]*)</>", "<{}>{}</>")]
            args["tag_pattern"], form = chance.choice(tags)
        transform = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}
        field = {"open_pattern": "<call:(?P<name>[^>]*)>", "close": "</call>", "repeats": True, "content": content}
        field |= {"content_args": args, "transform": [transform] if chance.is_in(10) else transform}

        def call():
            entries = [(chance.choice(KEYS), self.values.scalar_text()) for _ in chance.many(0, 6)]
            texts = [text for _, text in entries]
            several = chance.sample(texts, min(2, len(texts)))
            body = json.dumps({key: several if chance.is_in(20) else text for key, text in entries})
            if content != "json":
                written = form.format if content == "xml-inline" else "{}: {}\n".format
                body = "".join(written(key, text) for key, text in entries)
            return f"<call:{chance.choice(NAMES)}>{body}</call>"

        def answer():
            return "".join(self.values.words() * chance.is_in(20) + call() for _ in chance.many(1, 3))

        template = {"start_anchor": "<s>", "fields": {"tool_calls": field, "content": {}}}
        return template, answer, lambda: self.prompt(lambda: "<s>", call)

    def refused(self):
        """Returns a template with a pattern that has no search in linear time."""
        pattern = self.chance.choice(REFUSED_PATTERNS)
        field = self.chance.choice([{"open_pattern": pattern}, {"open": "<a>", "close_pattern": pattern},
                                    {"open": "<a>", "content": "xml-inline", "content_args": {"tag_pattern": pattern}}])
        field |= {"transform": {"a": "{content}"}} if "(?P<n>" in pattern else {}
        return {"template": {"start_anchor": "<s>", "fields": {"content": field}}, "refused": True, "cases": []}

    def long_number(self):
        """Returns a template for numbers with as many digits as Python reads, or one more. It has no slow patterns."""
        field = {"open": "<a>", "close": "</a>", "content": self.chance.choice(["int", "float", "json", "bool"])}
        field |= {"content_args": {"allow_non_json": True}} if self.chance.is_in(50) else {}
        number = self.chance.choice(["", "-", "0", "[", "1.", "+"]) + "9" * self.chance.randint(4299, 4301)
        case = {
            "prompt": "<s>", "tools": [], "pieces": ["<a>" + number + self.chance.choice(["</a>", "]</a>", "", "_0"])]
        }
        return {"template": {"start_anchor": "<s>", "fields": {"content": field}}, "cases": [case]}

    def group(self):
        """Returns a template with cases."""
        if self.chance.is_in(0.5):
            return self.refused()
        if self.chance.is_in(0.3):
            return self.long_number()
        kinds = {"of_random": 65, "of_corpus": 25, "of_calls": 10}
        template, answer, prompt = getattr(self, self.chance.weighted(kinds))()
        template = copy.deepcopy(template)
        if self.chance.is_in(5):
            self.mix(template)
        if self.chance.is_in(8):
            self.strange(template)
        cases, text = [], answer()
        for number in range(ANSWERS_PER_TEMPLATE):
            # Two of three texts come in two ways.
            text = answer() if number % 3 != 1 else text
            cases.append({
                "prompt": prompt(), "tools": self.tools() if self.chance.is_in(60) else [], "pieces": self.pieces(text)
            })
        return {"template": template, "cases": cases}


def group(seed, number, corpus):
    """Returns a template with cases, which depend on the numbers only."""
    return Answers(Chance(f"{seed}:{number}"), corpus).group()
