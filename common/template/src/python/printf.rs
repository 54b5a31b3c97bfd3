//! `'...%s...' % values`.

use minijinja::Value;

use super::spec::Spec;
use super::{number, repr};
use crate::budget;
use crate::error::{Fallible, fail};
use crate::interpreter::Interpreter;
use crate::python::convert::defined;
use crate::python::markup;
use crate::python::number::as_float;
use crate::python::text::Side;
use crate::python::text::justify;
use crate::text_buffer::TextBuffer;
use crate::value::{PyObject, PyValue, as_digits, py_object, py_value, safe_text, seq, text, type_name};

/// Formats a template text.
pub(crate) fn format(interpreter: &mut dyn Interpreter, template: &Value, values: &Value) -> Fallible<Value> {
    let Some(content) = template.as_str() else {
        return Err(fail("not a text"));
    };
    budget::scan(content.len())?;
    let mut printer =
        Printer { interpreter, rest: content, values, next: 0, out: TextBuffer::new(), escape: template.is_safe() };
    printer.run()?;
    printer.check_all_used()?;
    let out = printer.out.finish();
    if template.is_safe() { safe_text(out) } else { text(out) }
}

struct Printer<'a, 's> {
    interpreter: &'a mut dyn Interpreter,
    rest: &'s str,
    values: &'s Value,
    /// The number of positional values used so far.
    next: usize,
    out: TextBuffer,
    /// True if values are escaped for HTML unless they are marked as safe.
    escape: bool,
}

/// The steps to read a conversion and to find its value.
const CONVERSION_STEPS: usize = 4;

/// One `%...` conversion.
struct Conversion {
    key: Option<String>,
    spec: Spec,
    kind: char,
}

impl Printer<'_, '_> {
    fn run(&mut self) -> Fallible<()> {
        while let Some(at) = self.rest.find('%') {
            let (before, after) = self.rest.split_at(at);
            self.out.push(before)?;
            self.rest = &after[1..];
            if let Some(rest) = self.rest.strip_prefix('%') {
                self.out.push("%")?;
                self.rest = rest;
                continue;
            }
            let conversion = self.conversion()?;
            self.convert(&conversion)?;
        }
        self.out.push(self.rest)
    }

    fn take(&mut self) -> Fallible<char> {
        let c = self.rest.chars().next().ok_or_else(|| fail("incomplete format"))?;
        self.rest = &self.rest[c.len_utf8()..];
        Ok(c)
    }

    fn conversion(&mut self) -> Fallible<Conversion> {
        let key = self.key()?;
        let mut spec = Spec::parse("")?;
        spec.align = Some('>');
        while let Some(flag) = self.rest.chars().next().filter(|c| matches!(c, '-' | '+' | ' ' | '#' | '0')) {
            self.take()?;
            match flag {
                '-' => spec.align = Some('<'),
                '+' => spec.sign = Some('+'),
                ' ' if spec.sign.is_none() => spec.sign = Some(' '),
                '#' => spec.alternate = true,
                '0' => spec.fill = '0',
                _ => {}
            }
        }
        if let Some(width) = self.size()? {
            if width < 0 {
                spec.align = Some('<');
            }
            spec.width = usize::try_from(width.unsigned_abs()).unwrap_or(usize::MAX);
        }
        if let Some(rest) = self.rest.strip_prefix('.') {
            self.rest = rest;
            spec.precision = Some(usize::try_from(self.size()?.unwrap_or(0)).unwrap_or(0));
        }
        self.rest = self.rest.trim_start_matches(['h', 'l', 'L']);
        let kind = self.take()?;
        Ok(Conversion { key, spec, kind })
    }

    fn key(&mut self) -> Fallible<Option<String>> {
        let Some(rest) = self.rest.strip_prefix('(') else {
            return Ok(None);
        };
        let mut depth = 1;
        for (at, c) in rest.char_indices() {
            depth += i32::from(c == '(') - i32::from(c == ')');
            if depth == 0 {
                self.rest = &rest[at + 1..];
                return Ok(Some(rest[..at].to_owned()));
            }
        }
        Err(fail("incomplete format key"))
    }

    /// Reads a width or precision: digits, or `*` for the next value.
    fn size(&mut self) -> Fallible<Option<i64>> {
        if let Some(rest) = self.rest.strip_prefix('*') {
            self.rest = rest;
            let value = self.next_value()?;
            return match as_digits(&value) {
                Some(int) => Ok(Some(i64::try_from(int).map_err(|_| fail("width too big"))?)),
                None => Err(fail("* wants int")),
            };
        }
        let len = self.rest.bytes().take_while(u8::is_ascii_digit).count();
        let (digits, rest) = self.rest.split_at(len);
        self.rest = rest;
        if digits.is_empty() {
            return Ok(None);
        }
        digits.parse().map(Some).map_err(|_| fail("width too big"))
    }

    fn next_value(&mut self) -> Fallible<Value> {
        let at = self.next;
        self.next += 1;
        let value = match seq(self.values).filter(|values| !values.is_list()) {
            Some(values) => values.items().get(at).cloned(),
            None => (at == 0).then(|| self.values.clone()),
        };
        value.ok_or_else(|| fail("not enough arguments for format string"))
    }

    fn check_all_used(&self) -> Fallible<()> {
        let unused = match py_value(self.values) {
            PyValue::Object(PyObject::Seq(values)) if !values.is_list() => self.next < values.items().len(),
            PyValue::Object(PyObject::Seq(_) | PyObject::Dict(_) | PyObject::Namespace(_) | PyObject::Range(_))
            | PyValue::Undefined(_) => false,
            _ => self.next == 0,
        };
        if unused { Err(fail("not all arguments converted during string formatting")) } else { Ok(()) }
    }

    fn convert(&mut self, conversion: &Conversion) -> Fallible<()> {
        budget::steps(CONVERSION_STEPS)?;
        let value = match &conversion.key {
            Some(key) => self.keyed(key)?,
            None => self.next_value()?,
        };
        let text = match conversion.kind {
            's' => {
                let content = self.text_of(&value)?;
                conversion.text(&content)?
            }
            'r' => conversion.text(&self.escaped(repr::repr(&value)?)?)?,
            'a' => conversion.text(&self.escaped(repr::ascii(&repr::repr(&value)?)?)?)?,
            'c' => conversion.text(&character(&value)?)?,
            kind => conversion.number(&value, kind)?,
        };
        self.out.push(&text)
    }

    fn keyed(&mut self, key: &str) -> Fallible<Value> {
        self.next = usize::MAX / 2;
        match py_object(self.values) {
            Some(PyObject::Undefined(undefined)) => Err(undefined.error()),
            Some(PyObject::Dict(dict)) => dict.get_str(key).cloned().ok_or_else(|| fail(format!("KeyError: '{key}'"))),
            _ => Err(fail("format requires a mapping")),
        }
    }

    fn text_of(&mut self, value: &Value) -> Fallible<String> {
        let text = repr::to_str(self.interpreter, value)?;
        if value.is_safe() { Ok(text) } else { self.escaped(text) }
    }

    fn escaped(&self, text: String) -> Fallible<String> {
        if self.escape { markup::escape_html(&text) } else { Ok(text) }
    }
}

fn character(value: &Value) -> Fallible<String> {
    match py_value(defined(value)?) {
        PyValue::Str(text) if text.chars().count() == 1 => Ok(text.to_owned()),
        PyValue::Int(code) => {
            let c = u32::try_from(code).ok().and_then(char::from_u32);
            c.map(String::from).ok_or_else(|| fail("%c arg not in range(0x110000)"))
        }
        _ => Err(fail("%c requires int or char")),
    }
}

impl Conversion {
    fn text(&self, content: &str) -> Fallible<String> {
        Spec { kind: None, fill: ' ', sign: None, alternate: false, ..self.spec.clone() }.text(content)
    }

    fn number(&self, value: &Value, kind: char) -> Fallible<String> {
        match kind {
            'd' | 'i' | 'u' => self.int(&whole(value, kind)?, 'd'),
            'x' | 'X' | 'o' => match as_digits(defined(value)?) {
                Some(_) => self.int(value, kind),
                None => Err(fail(format!("%{kind} format: an integer is required, not {}", type_name(value)))),
            },
            'e' | 'E' | 'f' | 'F' | 'g' | 'G' => match as_float(defined(value)?)? {
                Some(float) => self.field(kind).format(&Value::from(float)),
                None => Err(fail(format!("must be real number, not {}", type_name(value)))),
            },
            _ => Err(fail(format!("unsupported format character '{kind}'"))),
        }
    }

    /// A precision is the least number of digits.
    fn int(&self, value: &Value, kind: char) -> Fallible<String> {
        let Some(precision) = self.spec.precision else {
            return self.field(kind).format(value);
        };
        let digits = Spec { width: 0, precision: None, ..self.field(kind) }.format(value)?;
        let sign = digits.len() - digits.trim_start_matches(['-', '+', ' ']).len();
        let (sign, digits) = digits.split_at(sign);
        let width = i64::try_from(precision).unwrap_or(i64::MAX);
        let digits = justify(digits, width, '0', Side::Right)?;
        let field = Spec { precision: None, kind: None, fill: ' ', sign: None, alternate: false, ..self.spec.clone() };
        field.text(&format!("{sign}{digits}"))
    }

    /// Zeros fill the field only to the left of the digits.
    fn field(&self, kind: char) -> Spec {
        let spec = self.spec.clone();
        let zeros = spec.fill == '0' && spec.align == Some('>');
        let align = if zeros { Some('=') } else { spec.align };
        Spec { align, fill: if zeros { '0' } else { ' ' }, kind: Some(kind), ..spec }
    }
}

/// Returns the integer of `%d`, which also accepts floats and truncates them.
fn whole(value: &Value, kind: char) -> Fallible<Value> {
    match py_value(defined(value)?) {
        PyValue::Float(float) => number::truncate(float),
        _ if as_digits(value).is_some() => Ok(value.clone()),
        _ => Err(fail(format!("%{kind} format: a real number is required, not {}", type_name(value)))),
    }
}
