//! Methods of texts.

use minijinja::Value;

use crate::arguments::{Args, required};
use crate::error::{Fallible, fail};
use crate::interpreter::Interpreter;
use crate::python::convert::{defined, int_arg, or_none, text_arg};
use crate::python::markup;
use crate::python::{attribute, format, repr, text};
use crate::text_buffer::TextBuffer;
use crate::unicode::is_space;
use crate::value::{Dict, PyValue, dict, iterate, list, none, py_value, seq, text_like, text_part, tuple, type_name};
use crate::{budget, taint, unicode};

/// `str.split` or `str.rsplit`: takes the text, the separator and the most splits.
type Splitter = for<'t> fn(&'t str, Option<&str>, Option<usize>) -> Fallible<Vec<&'t str>>;

pub(super) fn call(
    interpreter: &mut dyn Interpreter,
    receiver: &Value,
    content: &str,
    name: &'static str,
    args: &Args<'_>,
) -> Fallible<Value> {
    match name {
        "startswith" | "endswith" | "removeprefix" | "removesuffix" => budget::steps(1)?,
        "find" | "split" | "replace" | "upper" | "lower" => budget::scan(content.len())?,
        _ => budget::walk(content.len())?,
    }
    let receiver = Receiver { value: receiver, content, name };
    match name {
        "format" => receiver.like(format::format(
            interpreter,
            content,
            &args.positional,
            &args.keywords,
            receiver.value.is_safe(),
        )?),
        "format_map" => format_map(interpreter, &receiver, args),
        "split" => receiver.split(args, text::split),
        "rsplit" => receiver.split(args, text::rsplit),
        "splitlines" => receiver.splitlines(args),
        "replace" => receiver.replace(args),
        "escape" => {
            let [value] = args.only_positional(name).and_then(|_| args.bind(name, [""]))?;
            markup::escape(interpreter, &required(value, name, "s")?)
        }
        "striptags" => {
            args.bind::<0>(name, [])?;
            markup::striptags(interpreter, receiver.value)
        }
        "unescape" => {
            args.bind::<0>(name, [])?;
            markup::unescape(content)
        }
        "maketrans" => make_translation(args.only_positional(name)?),
        "translate" => {
            let [table] = args.bind(name, [""])?;
            receiver.translate(interpreter, &required(table, name, "table")?)
        }
        "expandtabs" => receiver.expand_tabs(args),
        _ => receiver.call_positional(args.only_positional(name)?),
    }
}

/// `str.maketrans`: returns a dict from code points to replacements.
fn make_translation(args: &[Value]) -> Fallible<Value> {
    let (from, to, dropped) = match args {
        [table] => return number_keys(table),
        [from, to] => (text_arg(from, "maketrans")?, text_arg(to, "maketrans")?, ""),
        [from, to, dropped] => {
            (text_arg(from, "maketrans")?, text_arg(to, "maketrans")?, text_arg(dropped, "maketrans")?)
        }
        _ => return Err(fail(format!("maketrans expected 1 to 3 arguments, got {}", args.len()))),
    };
    budget::walk(from.len() + to.len() + dropped.len())?;
    if from.chars().count() != to.chars().count() {
        return Err(fail("the first two maketrans arguments must have equal length"));
    }
    let number = |c: char| Value::from(u32::from(taint::strip_char(c)));
    budget::alloc_values(2 * (from.len() + dropped.len()))?;
    let pairs = from.chars().zip(to.chars()).map(|(from, to)| (number(from), number(to)));
    Dict::value(pairs.chain(dropped.chars().map(|c| (number(c), none()))).collect())
}

fn number_keys(table: &Value) -> Fallible<Value> {
    let Some(table) = dict(table) else {
        return Err(fail("if you give only one argument to maketrans it must be a dict"));
    };
    budget::alloc_values(2 * table.len())?;
    let number = |(key, item): &(Value, Value)| match (py_value(key), key.as_str().map(only_char)) {
        (_, Some(Some(c))) => Ok((Value::from(u32::from(taint::strip_char(c))), item.clone())),
        (_, Some(None)) => Err(fail("string keys in translate table must be of length 1")),
        (PyValue::Int(_) | PyValue::Bool(_), None) => Ok((key.clone(), item.clone())),
        _ => Err(fail("keys in translate table must be strings or integers")),
    };
    Dict::value(table.entries().iter().map(number).collect::<Fallible<_>>()?)
}

/// Returns the character of a text of length 1.
fn only_char(text: &str) -> Option<char> {
    let mut chars = text.chars();
    chars.next().filter(|_| chars.next().is_none())
}

fn format_map(interpreter: &mut dyn Interpreter, receiver: &Receiver<'_>, args: &Args<'_>) -> Fallible<Value> {
    let [mapping] = args.bind("format_map", [""])?;
    let mapping = required(mapping, "format_map", "mapping")?;
    let entries = dict(&mapping).map(Dict::entries).ok_or_else(|| fail("format_map() argument must be a mapping"))?;
    receiver.like(format::format(interpreter, receiver.content, &[], entries, receiver.value.is_safe())?)
}

/// The receiver of a method of `str`.
struct Receiver<'a> {
    value: &'a Value,
    content: &'a str,
    name: &'static str,
}

impl Receiver<'_> {
    /// Returns a text that is marked as safe if the receiver is.
    fn like(&self, content: String) -> Fallible<Value> {
        text_like(self.value, content)
    }

    fn part(&self, part: &str) -> Fallible<Value> {
        text_part(self.value, part)
    }

    fn likes<'p>(&self, parts: impl IntoIterator<Item = &'p str>) -> Fallible<Vec<Value>> {
        parts.into_iter().map(|part| self.part(part)).collect()
    }

    /// Replaces every character by the table's item for its code point.
    fn translate(&self, interpreter: &mut dyn Interpreter, table: &Value) -> Fallible<Value> {
        if dict(table).is_none() && seq(table).is_none() && table.as_str().is_none() {
            return Err(fail(format!("'{}' object is not subscriptable", type_name(table))));
        }
        let mut out = TextBuffer::new();
        for c in self.content.chars() {
            budget::steps(2)?;
            let found = attribute::item(interpreter, table, &Value::from(u32::from(taint::strip_char(c))))?;
            match py_value(&found) {
                PyValue::Undefined(_) => out.push(c.encode_utf8(&mut [0; 4]))?,
                PyValue::None => {}
                PyValue::Str(text) => out.push(text)?,
                PyValue::Int(_) | PyValue::Bool(_) => {
                    let code = u32::try_from(int_arg(&found)?).ok().filter(|code| *code <= 0x10_ffff);
                    let c = code.ok_or_else(|| fail("character mapping must be in range(0x110000)"))?;
                    let c = char::from_u32(c).ok_or_else(|| fail("a lone surrogate is not supported"))?;
                    out.push(c.encode_utf8(&mut [0; 4]))?;
                }
                _ => return Err(fail("character mapping must return integer, None or str")),
            }
        }
        self.like(out.finish())
    }

    fn call_positional(&self, args: &[Value]) -> Fallible<Value> {
        let content = self.content;
        match (self.name, args) {
            ("upper", []) => self.rewritten(str::to_uppercase),
            ("lower", []) => self.rewritten(str::to_lowercase),
            ("capitalize", []) => self.rewritten(text::capitalize),
            ("title", []) => self.rewritten(text::title),
            ("swapcase", []) => self.rewritten(text::swapcase),
            ("casefold", []) => self.rewritten(text::casefold),
            ("strip", _) => self.strip(args, true, true),
            ("lstrip", _) => self.strip(args, true, false),
            ("rstrip", _) => self.strip(args, false, true),
            ("startswith", _) => self.affix(args, |content, affix| taint::after_prefix(content, affix).is_some()),
            ("endswith", _) => self.affix(args, |content, affix| taint::before_suffix(content, affix).is_some()),
            ("join", [items]) => self.join(items),
            ("find" | "rfind" | "index" | "rindex", _) => self.find(args),
            ("count", _) => self.count(args),
            ("partition" | "rpartition", [separator]) => self.partition(separator),
            ("removeprefix", [prefix]) => {
                let prefix = text_arg(prefix, self.name)?;
                budget::scan(prefix.len())?;
                self.part(&content[taint::after_prefix(content, prefix).unwrap_or(0)..])
            }
            ("removesuffix", [suffix]) => {
                let suffix = text_arg(suffix, self.name)?;
                budget::scan(suffix.len())?;
                self.part(&content[..taint::before_suffix(content, suffix).unwrap_or(content.len())])
            }
            ("center" | "ljust" | "rjust", _) => self.justify(args),
            ("zfill", [width]) => self.like(text::zfill(content, int_arg(width)?)?),
            (_, []) => self.predicate(),
            _ => Err(fail(format!("wrong number of arguments for the method '{}'", self.name))),
        }
    }

    /// Rewrites the text with `change` and keeps its taint.
    fn rewritten(&self, change: fn(&str) -> String) -> Fallible<Value> {
        if !self.content.is_ascii() {
            budget::walk(2 * self.content.len())?;
            budget::room(3 * self.content.len())?;
        }
        self.like(taint::rewrite(self.content, change))
    }

    fn predicate(&self) -> Fallible<Value> {
        let content = &*taint::strip(self.content);
        let all = |holds: fn(char) -> bool| !content.is_empty() && content.chars().all(holds);
        Ok(Value::from(match self.name {
            "isspace" => all(is_space),
            "isascii" => content.is_ascii(),
            "isprintable" => content.chars().all(unicode::is_printable),
            "isalpha" => all(unicode::is_alpha),
            "isdecimal" => all(|c| unicode::decimal(c).is_some()),
            "isdigit" => all(unicode::is_digit),
            "isnumeric" => all(unicode::is_numeric),
            "isalnum" => all(|c| unicode::is_alpha(c) || unicode::is_numeric(c)),
            "isidentifier" => text::is_identifier(content),
            "islower" => text::is_lower(content),
            "isupper" => text::is_upper(content),
            "istitle" => text::is_title(content),
            _ => return Err(fail(format!("wrong number of arguments for the method '{}'", self.name))),
        }))
    }

    fn strip(&self, args: &[Value], left: bool, right: bool) -> Fallible<Value> {
        let [chars] = Args::of(args).bind(self.name, [""])?;
        let chars = or_none(chars);
        let chars = chars.as_ref().map(|chars| text_arg(chars, self.name)).transpose()?;
        self.part(text::strip(self.content, chars, left, right))
    }

    fn split(&self, args: &Args<'_>, split: Splitter) -> Fallible<Value> {
        let [separator, limit] = args.bind(self.name, ["sep", "maxsplit"])?;
        let separator = or_none(separator);
        let separator = separator.as_ref().map(|separator| text_arg(separator, self.name)).transpose()?;
        let limit = limit.map_or(Ok(-1), |limit| int_arg(&limit))?;
        let parts = split(self.content, separator, usize::try_from(limit).ok())?;
        list(self.likes(parts)?)
    }

    fn splitlines(&self, args: &Args<'_>) -> Fallible<Value> {
        let [keep_ends] = args.bind(self.name, ["keepends"])?;
        let keep_ends = keep_ends.is_some_and(|keep_ends| keep_ends.is_true());
        let lines = text::lines(self.content, keep_ends)?;
        list(self.likes(lines)?)
    }

    fn replace(&self, args: &Args<'_>) -> Fallible<Value> {
        let [old, new, count] = args.bind(self.name, ["", "", "count"])?;
        let (old, new) = (required(old, "replace", "old")?, required(new, "replace", "new")?);
        let count = count.map_or(Ok(-1), |count| int_arg(&count))?;
        let old = text_arg(&old, self.name)?;
        if self.value.is_safe() && !new.is_safe() {
            let new = markup::escape_html(&repr::to_plain_str(&new)?)?;
            return self.like(text::replace(self.content, old, &new, usize::try_from(count).ok())?);
        }
        let new = text_arg(&new, self.name)?;
        self.like(text::replace(self.content, old, new, usize::try_from(count).ok())?)
    }

    fn affix(&self, args: &[Value], holds: fn(&str, &str) -> bool) -> Fallible<Value> {
        let [affix, start, stop] = Args::of(args).bind(self.name, ["", "", ""])?;
        let affix = required(affix, self.name, "prefix")?;
        let Some((_, content)) = text::window(self.content, start.as_ref(), stop.as_ref())? else {
            return Ok(Value::from(false));
        };
        let holds = |affix: &str| {
            budget::scan(affix.len())?;
            Ok(holds(content, affix))
        };
        if let Some(affixes) = seq(&affix).filter(|affixes| !affixes.is_list()) {
            for affix in affixes.items() {
                if holds(text_arg(affix, self.name)?)? {
                    return Ok(Value::from(true));
                }
            }
            return Ok(Value::from(false));
        }
        match py_value(defined(&affix)?) {
            PyValue::Str(affix) => holds(affix).map(Value::from),
            _ => Err(fail(format!("{} first arg must be str or a tuple of str, not {}", self.name, type_name(&affix)))),
        }
    }

    fn join(&self, items: &Value) -> Fallible<Value> {
        let mut joined = TextBuffer::new();
        for (at, item) in iterate(items)?.enumerate() {
            let item = item?;
            if at > 0 {
                joined.push(self.content)?;
            }
            match (py_value(&item), self.value.is_safe()) {
                (PyValue::Str(part), false) => joined.push(part)?,
                (PyValue::Str(part), true) if item.is_safe() => joined.push(part)?,
                (_, true) => joined.push(&markup::escape_html(&repr::to_plain_str(&item)?)?)?,
                _ => {
                    let found = type_name(&item);
                    return Err(fail(format!("sequence item {at}: expected str instance, {found} found")));
                }
            }
        }
        self.like(joined.finish())
    }

    fn find(&self, args: &[Value]) -> Fallible<Value> {
        let [part, start, stop] = Args::of(args).bind(self.name, ["", "", ""])?;
        let part = required(part, self.name, "sub")?;
        let part = text_arg(&part, self.name)?;
        budget::walk(part.len())?;
        let found = text::window(self.content, start.as_ref(), stop.as_ref())?.and_then(|(offset, content)| {
            let (content, part) = (taint::strip(content), &*taint::strip(part));
            let at = if self.name.starts_with('r') { content.rfind(part) } else { content.find(part) };
            at.map(|at| offset + content[..at].chars().count())
        });
        match found {
            Some(at) => Ok(Value::from(at)),
            None if self.name.ends_with("index") => Err(fail("substring not found")),
            None => Ok(Value::from(-1)),
        }
    }

    fn count(&self, args: &[Value]) -> Fallible<Value> {
        let [part, start, stop] = Args::of(args).bind(self.name, ["", "", ""])?;
        let part = required(part, self.name, "sub")?;
        let part = text_arg(&part, self.name)?;
        budget::walk(part.len())?;
        let window = text::window(self.content, start.as_ref(), stop.as_ref())?;
        let part = &*taint::strip(part);
        Ok(Value::from(window.map_or(0, |(_, content)| taint::strip(content).matches(part).count())))
    }

    fn partition(&self, separator: &Value) -> Fallible<Value> {
        let separator = text_arg(separator, self.name)?;
        let backwards = self.name == "rpartition";
        let split = if backwards { text::rsplit } else { text::split };
        let parts = match split(self.content, Some(separator), Some(1))?.as_slice() {
            [before, after] => [before, separator, after],
            _ if backwards => ["", "", self.content],
            _ => [self.content, "", ""],
        };
        tuple(self.likes(parts)?)
    }

    fn justify(&self, args: &[Value]) -> Fallible<Value> {
        let [width, fill] = Args::of(args).bind(self.name, ["", ""])?;
        let width = int_arg(&required(width, self.name, "width")?)?;
        let fill = fill.unwrap_or_else(|| Value::from(" "));
        let fill = text_arg(&fill, self.name)?;
        let mut chars = fill.chars();
        let (Some(fill), None) = (chars.next(), chars.next()) else {
            return Err(fail("The fill character must be exactly one character long"));
        };
        if self.value.is_safe() && matches!(taint::strip_char(fill), '&' | '<' | '>' | '"' | '\'') {
            return Err(fail("The fill character must be exactly one character long"));
        }
        let side = match self.name {
            "ljust" => text::Side::Left,
            "rjust" => text::Side::Right,
            _ => text::Side::Center,
        };
        self.like(text::justify(self.content, width, fill, side)?)
    }

    fn expand_tabs(&self, args: &Args<'_>) -> Fallible<Value> {
        let [size] = args.bind(self.name, ["tabsize"])?;
        let size = size.map_or(Ok(8), |size| int_arg(&size))?;
        self.like(text::expand_tabs(self.content, usize::try_from(size).unwrap_or(0))?)
    }
}
