//! The state that all parts share.

use super::args::Gateway;
use super::services::Services;
use super::tasks::Tasks;

/// The running services and the tasks that every part uses.
pub(super) struct Bench<'a> {
    pub(super) args: &'a Gateway,
    /// Their mock has a step without duration.
    pub(super) services: Services,
    pub(super) tasks: Tasks,
}
