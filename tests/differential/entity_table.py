"""Prints common/template/src/unicode/entities.rs: HTML's named characters, as in this Python."""

from html.entities import html5

print("""//! The named character references of HTML, as in Python's `html.unescape`. Some need no semicolon.
//!
//! Made by `tests/differential/entity_table.py`.

/// The names, sorted, and their characters.
pub(super) const ENTITIES: &[(&str, &str)] = &[""")
line = "   "
for name, text in sorted(html5.items()):
    item = f' ("{name}", "' + "".join(f"\\u{{{ord(c):x}}}" for c in text) + '"),'
    if len(line) + len(item) > 118:
        print(line)
        line = "   "
    line += item
print(line)
print("];")
