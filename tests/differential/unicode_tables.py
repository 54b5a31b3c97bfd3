"""Prints common/template/src/unicode/tables.rs from the Unicode data of this Python."""
import sys
import unicodedata
def ranges(pred):
    out=[];start=None
    for c in range(0x110000):
        if 0xd800<=c<=0xdfff: ok=False
        else: ok=pred(chr(c))
        if ok and start is None: start=c
        if not ok and start is not None: out.append((start,c-1));start=None
    if start is not None: out.append((start,0x10ffff))
    return out
def emit(name,doc,r):
    print(f"/// {doc}\npub(super) const {name}: &[(u32, u32)] = &[")
    line="   "
    for a,b in r:
        item=f" (0x{a:x}, 0x{b:x}),"
        if len(line)+len(item)>118: print(line); line="   "
        line+=item
    print(line); print("];\n")
print(f'''//! Tables of Unicode {unicodedata.unidata_version}, the version of Python {sys.version_info[0]}.{sys.version_info[1]}. They are ranges of code points, both ends included.
//!
//! Made by `tests/differential/unicode_tables.py`.
''')
emit("UNPRINTABLE","Characters that `repr` escapes.",ranges(lambda c: not c.isprintable()))
emit("ALPHA","`str.isalpha`.",ranges(str.isalpha))
emit("DIGIT","`str.isdigit`.",ranges(str.isdigit))
emit("NUMERIC","`str.isnumeric`.",ranges(str.isnumeric))
emit("TITLE","Characters in title case, such as \u01c5.",ranges(lambda c: unicodedata.category(c)=='Lt'))
d=[c for c in range(0x110000) if not 0xd800<=c<=0xdfff and chr(c).isdecimal() and unicodedata.decimal(chr(c))==0]
print("/// The digit zero of every script. Its digits one to nine have the next nine code points.\npub(super) const ZEROS: &[u32] = &[")
line="   "
for a in d:
    item=f" 0x{a:x},"
    if len(line)+len(item)>118: print(line); line="   "
    line+=item
print(line); print("];\n")
t=[(c,chr(c).title()) for c in range(0x110000) if not 0xd800<=c<=0xdfff and chr(c).title()!=chr(c).upper()]
print("/// Characters whose title case is not their upper case.\npub(super) const TITLE_CASE: &[(char, &str)] = &[")
line="   "
for c,x in t:
    item=f" ('\\u{{{c:x}}}', \""+"".join(f"\\u{{{ord(y):x}}}" for y in x)+'"),'
    if len(line)+len(item)>118: print(line); line="   "
    line+=item
print(line); print("];")

f=[(c,chr(c).casefold()) for c in range(0x110000) if not 0xd800<=c<=0xdfff and chr(c).casefold()!=chr(c).lower()]
print("\n/// Characters whose folded case is not their lower case.\npub(super) const CASE_FOLDED: &[(char, &str)] = &[")
line="   "
for c,x in f:
    item=f" ('\\u{{{c:x}}}', \""+"".join(f"\\u{{{ord(y):x}}}" for y in x)+'"),'
    if len(line)+len(item)>118: print(line); line="   "
    line+=item
print(line); print("];")
