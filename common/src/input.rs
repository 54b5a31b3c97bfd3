//! The input of commands.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal as _, Write as _};
use std::path::Path;

/// Opens a file; `-` is standard input. If that is a terminal, a line on standard error says that
/// the program reads `content` from it.
///
/// # Errors
/// The file cannot be opened.
pub fn open(path: &Path, content: &str) -> io::Result<Box<dyn BufRead>> {
    if path != Path::new("-") {
        return Ok(Box::new(BufReader::new(File::open(path)?)));
    }
    if io::stdin().is_terminal() {
        writeln!(io::stderr(), "reading {content} from standard input; Ctrl-D ends it, --help shows an example")?;
    }
    Ok(Box::new(io::stdin().lock()))
}
