//! The facts that small conversations show about chat templates: about one template per fact, about
//! well-known models, and about every template of the corpus.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use render_svc::catalog::{ServedModel, facts};
use render_svc::probes::{self, ArgumentFact, ArgumentsShape, Finding, ModelValues, TemplateFacts};
use serde_json::{Map, Value, json};
use tandem_model_files::digest::hex_sha256;
use tandem_template::{ChatTemplate, Input, Limits, LocalTime};
use tandem_tests::corpus::read;
use tandem_tests::{corpus, repository, scratch};
use tempfile::TempDir;

/// Facts that take any text. The others need templates that show at least two values.
const OPEN_FACTS: [&str; 4] = ["generation_prompt", "end_of_turn", "adapter.reason", "answer.reason"];

/// Facts by name, and arguments by name as `argument.NAME`.
type Found = BTreeMap<String, String>;

#[test]
fn every_fact_has_templates_that_show_its_values() {
    let folder = repository().join("tests/golden/facts");
    let (mut values, mut wrong): (BTreeMap<String, BTreeSet<String>>, Vec<String>) = Default::default();
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(&folder).expect("the folder of templates") {
        let path = entry.expect("an entry").path();
        let Some(template) = path.extension().filter(|end| *end == "jinja").map(|_| text(&path)) else { continue };
        let found = found(&served(&template, &Map::new()));
        for (name, value) in expected(&template) {
            let shown = found.get(name).map_or("none", String::as_str);
            if shown != value {
                wrong.push(format!("{}: {name} is {shown:?}, not {value:?}", path.display()));
            }
            values.entry(name.to_owned()).or_default().insert(value.to_owned());
        }
        names.extend(found.into_keys().filter(|name| !name.starts_with("argument.")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let is_shown = |name: &String| OPEN_FACTS.contains(&name.as_str()) || values.get(name).is_some_and(|v| v.len() > 1);
    let missing: Vec<_> = names.iter().filter(|name| !is_shown(name)).collect();
    assert!(missing.is_empty(), "no templates show two values of {missing:?}");
}

#[test]
fn well_known_models_have_the_facts_of_their_makers() {
    let Some(corpus) = corpus() else { return };
    let rows = read(&repository().join("tests/golden/facts/well_known.json"));
    let rows = rows.as_array().expect("a list");
    let special_tokens = special_tokens(&corpus);
    let mut wrong = Vec::new();
    for row in rows {
        let slug = row["slug"].as_str().expect("a slug");
        let template = text(&corpus.join(format!("templates/{slug}.jinja")));
        let found = found(&served(&template, &special_tokens[slug]));
        for (name, value) in row["facts"].as_object().expect("facts") {
            let shown = found.get(name).map_or("none", String::as_str);
            if shown != value {
                wrong.push(format!("{slug}: {name} is {shown:?}, not {value}"));
            }
        }
    }
    assert!(rows.len() >= 30, "only {} models are known", rows.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_facts_about_every_template_hold_for_other_conversations() {
    let Some(corpus) = corpus() else { return };
    let (mut rows, mut columns, mut wrong) = (BTreeMap::new(), BTreeSet::new(), Vec::new());
    let mut time = Duration::ZERO;
    for (slug, special_tokens) in special_tokens(&corpus) {
        let template = text(&corpus.join(format!("templates/{slug}.jinja")));
        let start = Instant::now();
        let served = served(&template, &special_tokens);
        time += start.elapsed();
        let found = found(&served);
        let check = Check { served: &served, found: &found };
        wrong.extend(check.all().into_iter().map(|problem| format!("{slug}: {problem}")));
        columns.extend(found.keys().filter(|name| !name.starts_with("argument.")).cloned());
        rows.insert(slug, found);
    }
    let path = scratch().join("template-facts.tsv");
    std::fs::write(&path, table(&rows, &columns)).expect("the table can be written");
    eprintln!("{} templates in {time:?}: {}", rows.len(), path.display());
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(rows.len() > 200, "only {} templates were found", rows.len());
}

/// What templates do with the arguments `a` of a call, and the type that they expect.
const ARGUMENTS: &[(&str, ArgumentsShape)] = &[
    ("{{ c.name }}", ArgumentsShape::Unread),
    ("{{ a|length }}", ArgumentsShape::Unread),
    // An object.
    ("{{ a|tojson }}", ArgumentsShape::Object),
    ("{{ a|default({})|tojson(indent=2) }}", ArgumentsShape::Object),
    ("{% for k, v in a|items %}{{ k }}{{ v }}{% endfor %}", ArgumentsShape::Object),
    ("{% for k, v in a.items() %}{{ k }}={{ v|string }}{% endfor %}", ArgumentsShape::Object),
    ("{% for k in a %}{{ k }}={{ a[k] }}{% endfor %}", ArgumentsShape::Object),
    ("{{ '{\"arguments\": ' ~ (a|tojson) ~ '}' }}", ArgumentsShape::Object),
    ("{{ {'name': c.name, 'arguments': a}|tojson }}", ArgumentsShape::Object),
    ("{{ c|tojson }}", ArgumentsShape::Object),
    ("{{ m.tool_calls|map(attribute='function')|list|tojson }}", ArgumentsShape::Object),
    ("{% if a is mapping %}{{ a|tojson }}{% endif %}", ArgumentsShape::Object),
    ("{% if a is string %}{{ raise_exception('no: ' + a) }}{% endif %}{{ a|tojson }}", ArgumentsShape::Object),
    ("{% if a is string %}{{ a|from_json }}{% else %}{{ a|tojson }}{% endif %}", ArgumentsShape::Object),
    // A text.
    ("{{ a }}", ArgumentsShape::Text),
    ("{{ '<' + c.name + a + '>' }}", ArgumentsShape::Text),
    ("{{ c.name ~ a }}", ArgumentsShape::Text),
    ("{{ a|trim }}", ArgumentsShape::Text),
    ("{{ a.strip() }}", ArgumentsShape::Text),
    ("{% if a is string %}{{ a }}{% endif %}", ArgumentsShape::Text),
    // Both.
    ("{% if a is string %}{{ a }}{% else %}{{ a|tojson }}{% endif %}", ArgumentsShape::Either),
    ("{{ a|tojson if a is mapping else a }}", ArgumentsShape::Either),
    ("{% if a is string %}{{ a }}{% else %}{{ a|tojson|tojson }}{% endif %}", ArgumentsShape::Either),
    (
        "{% if a is string %}{{ a }}{% else %}{% for k, v in a|items %}{{ k }}{{ v }}{% endfor %}{% endif %}",
        ArgumentsShape::Either,
    ),
];

#[test]
fn probes_find_the_type_of_arguments() {
    let empty = Map::new();
    let values = ModelValues { special_tokens: &empty, toggles: &empty };
    for (body, expected) in ARGUMENTS {
        let set = "{% set c = call.function %}{% set a = c.arguments %}";
        let source =
            format!("{{% for m in messages %}}{{% for call in m.tool_calls %}}{set}{body}{{% endfor %}}{{% endfor %}}");
        let template = ChatTemplate::compile(&source).expect(body);
        let facts = TemplateFacts::of(&template, values, probes::deadline());
        assert_eq!(facts.tools.arguments, *expected, "{body}");
    }
}

/// A model may have many templates, each of which takes long to probe.
#[test]
fn probes_end_at_their_deadline_and_start_again_at_the_next_load() {
    let source = "{% for m in messages %}[{{ m.role }} of one deadline]{{ m.content }}{% endfor %}";
    let template = ChatTemplate::compile(source).expect("a valid template");
    let sha256 = hex_sha256(source.as_bytes()).into();
    let empty = Map::new();
    let values = ModelValues { special_tokens: &empty, toggles: &empty };
    let late = probes::facts_of(&template, &sha256, values, Instant::now());
    assert_eq!(*late, TemplateFacts::default());
    let in_time = probes::facts_of(&template, &sha256, values, probes::deadline());
    assert_eq!(in_time.instructions.system_first, Finding::Shown);
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns a model of this template alone.
fn served(template: &str, special_tokens: &Map<String, Value>) -> ServedModel {
    let folder = TempDir::new().expect("a temporary folder");
    let mut config = json!({"chat_template": template});
    config.as_object_mut().expect("an object").extend(special_tokens.clone());
    std::fs::write(folder.path().join("tokenizer_config.json"), config.to_string()).expect("a file");
    ServedModel::load(folder.path()).expect("a valid model")
}

/// Returns the special tokens of each template of the corpus.
fn special_tokens(corpus: &Path) -> BTreeMap<String, Map<String, Value>> {
    let manifest = read(&corpus.join("templates/manifest.json"));
    let tokens = |entry: &Value| {
        let set = ["bos_token", "eos_token"].into_iter().filter(|name| entry[name].is_string());
        set.map(|name| (name.to_owned(), entry[name].clone())).collect()
    };
    let row = |entry: &Value| (entry["slug"].as_str().expect("a slug").to_owned(), tokens(entry));
    manifest.as_array().expect("a list").iter().map(row).collect()
}

/// Returns what GetModel shows. Values of one name are joined.
fn found(served: &ServedModel) -> Found {
    let mut found = Found::new();
    for fact in facts::facts(served) {
        let value = fact.value.replace('\n', "\\n");
        found.entry(fact.name.into_owned()).and_modify(|known| *known = format!("{known} | {value}")).or_insert(value);
    }
    let arguments = facts::arguments(served);
    found.extend(arguments.iter().map(|(argument, _)| (format!("argument.{}", argument.name), shown(argument))));
    found
}

/// Returns an argument as the templates of this test write it: `[false,true] default true`.
fn shown(argument: &ArgumentFact) -> String {
    let mut parts = Vec::new();
    if !argument.is_any_text || !argument.values.is_empty() {
        parts.push(Value::from(argument.values.clone()).to_string());
    }
    parts.extend(argument.is_any_text.then(|| "any text".to_owned()));
    parts.extend(argument.default.as_ref().map(|value| format!("default {value}")));
    parts.join(" ")
}

/// Returns the facts that the comment in the first line states, as `NAME = VALUE; …`.
fn expected<'a>(template: &'a str) -> Vec<(&'a str, &'a str)> {
    let first = template.lines().next().unwrap_or_default();
    let stated =
        first.strip_prefix("{#").and_then(|text| text.strip_suffix("#}")).expect("a comment in the first line");
    let fact = |fact: &'a str| {
        let (name, value) = fact.split_once('=').unwrap_or_else(|| panic!("{fact:?} has no value"));
        (name.trim(), value.trim())
    };
    stated.split(';').map(fact).collect()
}

fn table(rows: &BTreeMap<String, Found>, columns: &BTreeSet<String>) -> String {
    let mut table = columns.iter().fold("template".to_owned(), |line, column| line + "\t" + column) + "\targuments\n";
    for (slug, found) in rows {
        let cell = |name: &String| found.get(name).map_or("", String::as_str).replace('\t', "\\t");
        let cells: Vec<_> = columns.iter().map(cell).collect();
        let arguments = found.iter().filter_map(|(name, value)| Some((name.strip_prefix("argument.")?, value)));
        let arguments: Vec<_> = arguments.map(|(name, value)| format!("{name} {value}")).collect();
        writeln!(table, "{slug}\t{}\t{}", cells.join("\t"), arguments.join("; ")).expect("a text can be written");
    }
    table
}

/// Compares facts with conversations of other words and other lengths.
struct Check<'a> {
    served: &'a ServedModel,
    found: &'a Found,
}

/// Words that no template contains, with the spaces and capitals of a sentence.
const WORDS: [&str; 3] = ["Xanthic quokkas", "vex jovial wyverns", "beneath Kyzyl"];
const ANSWER: &str = "Zebus quaff";
const QUESTION: &str = "Glyphs jinx";

impl Check<'_> {
    /// Returns every contradiction.
    fn all(&self) -> Vec<String> {
        let found = [self.instructions(), self.repeats(), self.contents(), self.reasoning(), self.tools()];
        found.into_iter().flatten().collect()
    }

    /// Returns the value of a fact. If no probe says anything about a template, no fact is shown.
    fn fact(&self, name: &str) -> &str {
        let has_facts = self.found.keys().any(|name| name.starts_with("content."));
        match self.found.get(name) {
            None if !has_facts => "unknown",
            found => found.unwrap_or_else(|| panic!("there is no fact {name:?}")),
        }
    }

    /// Returns the prompt, or None if the template fails.
    fn prompt(&self, messages: &[Value], tools: Option<&Value>) -> Option<String> {
        let named = self.served.model.templates.choose(None, false).expect("a template");
        let input = Input {
            messages,
            tools,
            documents: None,
            args: &Map::new(),
            special_tokens: &self.served.model.special_tokens,
            add_generation_prompt: messages.last().is_some_and(|last| last["role"] != "assistant"),
            continue_final_message: None,
            now: LocalTime::EPOCH,
            taint: None,
        };
        named.template.apply(&input, &Limits::default()).ok().map(|applied| applied.text)
    }

    /// Returns a message in the form that the template shows.
    fn said(&self, role: &str, text: &str) -> Value {
        let needs_list = ["left out", "refused"].contains(&self.fact("content.user.text"));
        let content = if needs_list { json!([{"type": "text", "text": text}]) } else { text.into() };
        json!({"role": role, "content": content})
    }

    /// Returns a contradiction between a fact and a conversation, if there is one. `shown` are the
    /// words whose fate the fact states.
    fn compare(&self, name: &str, messages: &[Value], words: &[&str]) -> Option<String> {
        let fact = self.fact(name);
        // Some templates for tools fail without any.
        let needs_tools = self.prompt(&[self.said("user", QUESTION)], None).is_none();
        let prompt = self.prompt(messages, needs_tools.then(tools).as_ref());
        let shows_all = prompt.as_ref().is_some_and(|prompt| words.iter().all(|words| prompt.contains(words)));
        let is_right = match fact {
            "shown" | "walked" | "separate" | "merged by the template" => shows_all,
            "one block only" => !shows_all,
            "left out" | "first block only" => prompt.is_some() && !shows_all,
            "refused" => prompt.is_none(),
            "unknown" => !shows_all,
            _ => true,
        };
        (!is_right).then(|| format!("{name} is {fact:?}, but the prompt of {} is {prompt:?}", json!(messages)))
    }

    fn instructions(&self) -> Vec<String> {
        let ask = || self.said("user", QUESTION);
        let mut problems = Vec::new();
        for role in ["system", "developer"] {
            let instruction = self.said(role, WORDS[0]);
            let first = [instruction.clone(), ask()];
            let later = [ask(), self.said("assistant", ANSWER), instruction, ask()];
            // Some templates show the text of a system message only in a list.
            let is_text = self.fact("content.system.text") == "shown" || role == "developer";
            problems.extend(self.compare(&format!("message.{role}.first"), &first, &WORDS[..1]).filter(|_| is_text));
            problems.extend(self.compare(&format!("message.{role}.later"), &later, &WORDS[..1]).filter(|_| is_text));
        }
        problems
    }

    fn repeats(&self) -> Vec<String> {
        let ask = || self.said("user", QUESTION);
        let all = |role: &str| WORDS.map(|words| self.said(role, words)).to_vec();
        let users = all("user");
        let answers = [vec![ask()], all("assistant"), vec![ask()]].concat();
        let systems = [&all("system")[..2], &[ask()]].concat();
        let cases = [("repeated.user", users), ("repeated.assistant", answers), ("repeated.system", systems)];
        let words = |name| if name == "repeated.system" { &WORDS[..2] } else { &WORDS[..] };
        cases.into_iter().filter_map(|(name, messages)| self.compare(name, &messages, words(name))).collect()
    }

    fn contents(&self) -> Vec<String> {
        let list = |role: &str| {
            let blocks: Vec<_> = WORDS.iter().map(|words| json!({"type": "text", "text": words})).collect();
            json!({"role": role, "content": blocks})
        };
        let ask = || self.said("user", QUESTION);
        let cases = [
            ("content.user.blocks", vec![list("user")]),
            ("content.system.blocks", vec![list("system"), ask()]),
            ("content.assistant.blocks", vec![ask(), list("assistant"), ask()]),
        ];
        cases.into_iter().filter_map(|(name, messages)| self.compare(name, &messages, &WORDS)).collect()
    }

    fn reasoning(&self) -> Vec<String> {
        let ask = || self.said("user", QUESTION);
        let mut thought = self.said("assistant", ANSWER);
        for key in ["reasoning_content", "reasoning"] {
            thought[key] = WORDS[0].into();
        }
        let last = [ask(), thought.clone()];
        let earlier = [ask(), thought, ask()];
        let cases = [("reasoning.last", &last[..]), ("reasoning.earlier", &earlier[..])];
        cases.into_iter().filter_map(|(name, messages)| self.compare(name, messages, &WORDS[..1])).collect()
    }

    fn tools(&self) -> Vec<String> {
        let shows =
            self.prompt(&[self.said("user", QUESTION)], Some(&tools())).map(|prompt| prompt.contains("find_wyverns"));
        let is_right = match self.fact("tools.declared") {
            "shown" => shows == Some(true),
            "left out" => shows == Some(false),
            "refused" => shows.is_none(),
            _ => true,
        };
        let problem = (!is_right).then(|| format!("tools.declared is {:?}", self.fact("tools.declared")));
        problem.into_iter().collect()
    }
}

/// Returns the declaration of a tool with two parameters.
fn tools() -> Value {
    let properties = json!({
        "place": {"type": "string", "description": "A place"},
        "count": {"type": "integer", "description": "A number"},
    });
    let parameters = json!({"type": "object", "properties": properties, "required": ["place"]});
    let function = json!({"name": "find_wyverns", "description": "Finds wyverns", "parameters": parameters});
    json!([{"type": "function", "function": function}])
}
