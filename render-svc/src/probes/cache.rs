//! Facts by template, so that models with one template and reloads probe once.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use parking_lot::Mutex;
use serde_json::json;
use tandem_model_files::digest::hex_sha256;
use tandem_template::ChatTemplate;

use super::facts::TemplateFacts;
use super::renderer::ModelValues;

/// The most templates whose facts are kept. A server has some dozens.
const MAX_TEMPLATES: usize = 512;

/// Facts by SHA-256 of the template, and SHA-256 of the values of the model.
type Known = HashMap<(Arc<str>, String), Arc<TemplateFacts>>;

static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

/// Returns the facts of a template with this SHA-256 and these values. The first call probes the
/// template. Facts of probes that the deadline ended are not kept.
#[must_use]
pub fn facts_of(
    template: &ChatTemplate,
    sha256: &Arc<str>,
    values: ModelValues<'_>,
    deadline: Instant,
) -> Arc<TemplateFacts> {
    let given = hex_sha256(json!([values.special_tokens, values.toggles]).to_string().as_bytes());
    let key = (Arc::clone(sha256), given);
    if let Some(known) = KNOWN.lock().get(&key) {
        return Arc::clone(known);
    }
    let facts = Arc::new(TemplateFacts::of(template, values, deadline));
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
