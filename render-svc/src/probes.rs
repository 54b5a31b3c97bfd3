//! Facts about a chat template, learned by rendering small conversations with marked texts.
//!
//! A word in a template can be in a comment, in a branch that is never taken, or in the name of
//! another thing. The prompt of a conversation decides instead. A probe whose
//! conversation the template cannot render at all gives no fact.

mod arguments;
mod cache;
mod contents;
mod conversation;
mod facts;
mod finding;
mod listing;
mod messages;
mod reasoning;
mod renderer;
mod tools;

pub use arguments::ArgumentFact;
pub use cache::facts_of;
pub use contents::{ContentFacts, ContentLists, RoleContents};
pub(crate) use conversation::DOCUMENT_KEYS;
pub use facts::TemplateFacts;
pub use finding::{Finding, Repeat};
pub use messages::{Instructions, Repeats};
pub use reasoning::ReasoningFacts;
pub(crate) use reasoning::{END as REASONING_END, START as REASONING_START};
pub(crate) use renderer::{LIMITS, Outcome, Probe, Renderer};
pub use renderer::{ModelValues, deadline};
pub use tools::{ArgumentsShape, ToolFacts};
