//! Checks of the source itself.

mod modules;
