//! The state that all parts of the benchmark share.

use super::args::Generate;
use super::bandwidth::Bandwidth;
use super::random::Random;
use super::system::System;

/// The systems, and the inputs of every part.
pub(super) struct Bench<'a> {
    pub(super) args: &'a Generate,
    pub(super) systems: Vec<System>,
    pub(super) random: Random,
    pub(super) bandwidth: Bandwidth,
}
