//! Checks of the source itself.

mod modules;
mod words;
