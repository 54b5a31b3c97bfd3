//! Facts by template, so that models with one template and reloads probe once.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use parking_lot::Mutex;
use serde_json::Value;
use tandem_model_files::digest::hex_sha256;
use tandem_template::ChatTemplate;

use super::facts::TemplateFacts;
use crate::conversation::Object;

/// The most templates whose facts are kept. A server has some dozens.
const MAX_TEMPLATES: usize = 512;

/// Facts by SHA-256 of the template, and SHA-256 of the special tokens.
type Known = HashMap<(Arc<str>, String), Arc<TemplateFacts>>;

static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

/// Returns the facts of a template with this SHA-256 and these special tokens. The first call
/// probes the template. Facts of probes that the deadline ended are not kept.
#[must_use]
pub fn facts_of(
    template: &ChatTemplate,
    sha256: &Arc<str>,
    special_tokens: &Object,
    deadline: Instant,
) -> Arc<TemplateFacts> {
    let tokens = hex_sha256(Value::Object(special_tokens.clone()).to_string().as_bytes());
    let key = (Arc::clone(sha256), tokens);
    if let Some(known) = KNOWN.lock().get(&key) {
        return Arc::clone(known);
    }
    let facts = Arc::new(TemplateFacts::of(template, special_tokens, deadline));
    if Instant::now() > deadline {
        return facts;
    }
    let mut known = KNOWN.lock();
    if known.len() >= MAX_TEMPLATES {
        known.clear();
    }
    known.insert(key, Arc::clone(&facts));
    facts
}
