//! Removes the GPU code of other cards from a library, so that it compresses well.
//!
//! The section `.nv_fatbin` has containers: a header of 16 bytes (magic number, version, header size,
//! content size), then entries. An entry has a kind, the size of its header, the size of its content,
//! and at byte 28 its architecture. cuobjdump shows the same entries.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::output::output_of;

const SECTION: &str = ".nv_fatbin";
const MAGIC: [u8; 4] = [0x50, 0xed, 0x55, 0xba];
const ALIGNMENT: usize = 8;
const CONTAINER_HEADER: usize = 16;
const ENTRY_HEADER: usize = 32;
/// The kind of an entry with machine code. The other kind is PTX.
const MACHINE_CODE: u16 = 2;

/// The bytes of entries.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Removed {
    pub(super) kept: usize,
    pub(super) blanked: usize,
}

/// Fills the entries of other architectures with zeros. The file's size and layout stay. A container
/// without machine code for `architecture` is kept whole.
pub(super) fn keep_only(file: &Path, architecture: u32) -> Result<Removed> {
    let (start, size) = section(file)?;
    let mut bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let end = start + size;
    ensure!(end <= bytes.len(), "section {SECTION} ends after {}", file.display());
    let removed = blank(&mut bytes[start..end], architecture)?;
    fs::write(file, bytes).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(removed)
}

/// Returns the offset and the size of the section.
fn section(file: &Path) -> Result<(usize, usize)> {
    let listed = output_of(Command::new("readelf").args(["--section-headers", "--wide"]).arg(file))?;
    let row = listed.lines().find(|line| line.split_whitespace().any(|word| word == SECTION));
    let Some((_, columns)) = row.and_then(|row| row.split_once(']')) else {
        bail!("{} has no section {SECTION}", file.display())
    };
    let columns: Vec<&str> = columns.split_whitespace().collect();
    let number = |at: usize| {
        let text: &str = columns.get(at).copied().unwrap_or_default();
        usize::from_str_radix(text, 16).with_context(|| format!("readelf prints {text:?} as a number"))
    };
    Ok((number(3)?, number(4)?))
}

fn blank(section: &mut [u8], architecture: u32) -> Result<Removed> {
    let (mut removed, mut at) = (Removed::default(), 0);
    while at + CONTAINER_HEADER <= section.len() {
        if section[at..at + 4] != MAGIC {
            at += ALIGNMENT;
            continue;
        }
        let header = usize::from(u16::from_le_bytes(field(section, at + 6)?));
        let content = usize::try_from(u64::from_le_bytes(field(section, at + 8)?))?;
        let end = at + header + content;
        let entries = entries(section, at + header, end)?;
        let is_wanted = |entry: &Entry| entry.kind == MACHINE_CODE && entry.architecture == architecture;
        let is_whole = !entries.iter().any(is_wanted);
        for entry in entries {
            if is_whole || is_wanted(&entry) {
                removed.kept += entry.size;
            } else {
                section[entry.start..entry.start + entry.size].fill(0);
                removed.blanked += entry.size;
            }
        }
        at = end;
    }
    Ok(removed)
}

/// An entry of a container.
struct Entry {
    kind: u16,
    architecture: u32,
    /// The place and the size of its content.
    start: usize,
    size: usize,
}

fn entries(section: &[u8], mut at: usize, end: usize) -> Result<Vec<Entry>> {
    let mut found = Vec::new();
    while at + ENTRY_HEADER <= end {
        let header = usize::try_from(u32::from_le_bytes(field(section, at + 4)?))?;
        let size = usize::try_from(u64::from_le_bytes(field(section, at + 8)?))?;
        let start = at + header;
        ensure!(header > 0 && start + size <= end, "an entry of {SECTION} ends after its container");
        let (kind, architecture) = (u16::from_le_bytes(field(section, at)?), field(section, at + 28)?);
        found.push(Entry { kind, architecture: u32::from_le_bytes(architecture), start, size });
        at = start + size;
    }
    Ok(found)
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N]> {
    let field = bytes.get(at..at + N).with_context(|| format!("section {SECTION} is cut off"))?;
    Ok(field.try_into()?)
}
