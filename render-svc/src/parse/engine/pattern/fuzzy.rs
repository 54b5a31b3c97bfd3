//! Separates fuzzy constraints of Python's `regex` module, such as `{e<=1}`, from braces that are ordinary characters.

use super::source::Source;

/// What follows an opening brace that starts no count.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Brace {
    Ordinary,
    Fuzzy,
    Invalid,
}

/// Why an item is not read.
enum Stop {
    Ordinary,
    Invalid,
}

/// Reads what follows a brace. Takes nothing if the brace is an ordinary character.
pub(super) fn read(source: &mut Source) -> Brace {
    let before = source.at;
    match items(source) {
        Ok(()) if source.peek() == Some(':') || source.take("}") => Brace::Fuzzy,
        Ok(()) | Err(Stop::Invalid) => Brace::Invalid,
        Err(Stop::Ordinary) => {
            source.at = before;
            Brace::Ordinary
        }
    }
}

fn items(source: &mut Source) -> Result<(), Stop> {
    let (mut seen, mut has_equation) = (String::new(), false);
    loop {
        let before = source.at;
        if let Err(stop) = constraint(source, &mut seen) {
            let Stop::Ordinary = stop else { return Err(stop) };
            source.at = before;
            if has_equation {
                return Err(Stop::Invalid);
            }
            equation(source)?;
            has_equation = true;
        }
        if !source.take(",") {
            return Ok(());
        }
    }
}

/// Reads a limit such as `e`, `e<=1` or `1<e<3`.
fn constraint(source: &mut Source, seen: &mut String) -> Result<(), Stop> {
    let before = source.at;
    match source.next() {
        Some(c) if c.is_ascii_alphabetic() => {
            kind(Some(c), seen)?;
            match comparison(source) {
                None => Ok(()),
                Some(least) => match number(source)? {
                    limit if limit < least || limit - least > u32::MAX.into() => Err(Stop::Invalid),
                    _ => Ok(()),
                },
            }
        }
        Some(c) if c.is_ascii_digit() => {
            source.at = before;
            let min = number(source)?;
            let min = min.saturating_add(comparison(source).ok_or(Stop::Ordinary)?);
            kind(source.next(), seen)?;
            let least = comparison(source).ok_or(Stop::Ordinary)?;
            let max = number(source)?.checked_sub(least).ok_or(Stop::Invalid)?;
            if min <= max { Ok(()) } else { Err(Stop::Invalid) }
        }
        _ => Err(Stop::Ordinary),
    }
}

fn kind(c: Option<char>, seen: &mut String) -> Result<(), Stop> {
    let c = c.filter(|c| "deis".contains(*c) && !seen.contains(*c)).ok_or(Stop::Ordinary)?;
    seen.push(c);
    Ok(())
}

/// Reads `<=` or `<`, and returns the least value above zero that the latter excludes.
fn comparison(source: &mut Source) -> Option<u64> {
    if source.take("<=") {
        return Some(0);
    }
    source.take("<").then_some(1)
}

fn number(source: &mut Source) -> Result<u64, Stop> {
    let digits = source.take_while(|c| c.is_ascii_digit());
    if digits.is_empty() { Err(Stop::Invalid) } else { Ok(digits.parse().unwrap_or(u64::MAX)) }
}

/// Reads an equation such as `2i+1d<=4`.
fn equation(source: &mut Source) -> Result<(), Stop> {
    let mut seen = String::new();
    loop {
        source.take_while(|c| c.is_ascii_digit());
        match source.next() {
            // Python reads the end of the pattern as a term.
            None => {}
            Some(c) if !"dis".contains(c) => return Err(Stop::Ordinary),
            Some(c) if seen.contains(c) => return Err(Stop::Invalid),
            Some(c) => seen.push(c),
        }
        if !source.take("+") {
            break;
        }
    }
    let least = comparison(source).ok_or(Stop::Ordinary)?;
    match number(source)?.checked_sub(least) {
        Some(limit) if limit <= u32::MAX.into() => Ok(()),
        _ => Err(Stop::Invalid),
    }
}
