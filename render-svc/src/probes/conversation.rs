//! The marked texts of probes.
//!
//! A mark is one word of lower-case letters, so that a template that trims, splits or escapes a text
//! leaves it whole. No mark is part of another one.

pub(super) const USER: &str = "qzuserone";
pub(super) const SECOND_USER: &str = "qzusertwo";
pub(super) const ASSISTANT: &str = "qzassistone";
pub(super) const SECOND_ASSISTANT: &str = "qzassisttwo";
pub(super) const SYSTEM: &str = "qzsystemone";
pub(super) const SECOND_SYSTEM: &str = "qzsystemtwo";
pub(super) const DEVELOPER: &str = "qzdeveloper";
pub(super) const FIRST_BLOCK: &str = "qzblockone";
pub(super) const SECOND_BLOCK: &str = "qzblocktwo";
pub(super) const TOOL: &str = "qztoolname";
pub(super) const ARGUMENT: &str = "qzargument";
pub(super) const RESULT: &str = "qzresultone";
pub(super) const SECOND_RESULT: &str = "qzresulttwo";
pub(super) const REASONING: &str = "qzreasoning";
pub(super) const DOCUMENT: &str = "qzdocument";
