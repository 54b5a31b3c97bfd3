//! The models of a server: folders, configuration, reloads, and models that do not load.

use std::fs;
use std::path::Path;

use render_svc::adapters::Registry;
use render_svc::catalog::{CatalogError, ModelCatalog, ReloadOutcome, Sources, config_file};
use serde_json::json;
use tandem_common::pb::render::v1 as pb;
use tandem_common::pb::render::v1::registry_service_client::RegistryServiceClient;
use tandem_common::pb::render::v1::render_service_client::RenderServiceClient;
use tandem_common::status::chain;
use tandem_tests::conversations::{conversation, prompt, request, text};
use tandem_tests::error_texts;
use tandem_tests::failure::is_failed;
use tandem_tests::gguf_file::File;
use tandem_tests::{repository, serve_catalog};
use tempfile::TempDir;
use tonic::Code;

/// Writes a model folder with this template.
fn write(folder: &Path, name: &str, template: &str) {
    let path = folder.join(name);
    fs::create_dir_all(&path).expect("a folder");
    let config = serde_json::json!({"chat_template": template});
    fs::write(path.join("tokenizer_config.json"), config.to_string()).expect("a file");
}

fn folder() -> TempDir {
    TempDir::new().expect("a temporary folder")
}

fn sources(folder: &TempDir) -> Sources {
    Sources { models: vec![folder.path().to_owned()], config: None }
}

fn configured(folder: &TempDir, config: &str) -> Sources {
    let path = folder.path().join("models.toml");
    fs::write(&path, config).expect("a file");
    Sources { models: Vec::new(), config: Some(path) }
}

fn open(sources: Sources) -> ModelCatalog {
    ModelCatalog::open(sources, Registry::default()).expect("the models load")
}

/// Checks the error of a catalog that does not open. FOLDER is written for the folder.
#[track_caller]
fn refused(case: &str, folder: &TempDir, sources: Sources) {
    let error = ModelCatalog::open(sources, Registry::default()).expect_err("the catalog does not open");
    error_texts::check(case, chain(&error).replace(&folder.path().display().to_string(), "FOLDER"));
}

fn ids(catalog: &ModelCatalog) -> Vec<String> {
    catalog.models().entries().map(|(id, _)| id.to_owned()).collect()
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

#[test]
fn reload_adds_new_removes_missing_and_rereads_changed_models() {
    let folder = folder();
    ["a", "b", "c"].iter().for_each(|name| write(folder.path(), name, "1"));
    let catalog = open(sources(&folder));
    let before = catalog.models();
    fs::remove_dir_all(folder.path().join("a")).expect("it is there");
    write(folder.path(), "b", "other");
    write(folder.path(), "d", "1");
    let expected =
        ReloadOutcome { loaded: names(&["b", "d"]), kept: names(&["c"]), removed: names(&["a"]), failed: Vec::new() };
    assert_eq!(catalog.reload().expect("reloads"), expected);
    assert_eq!(ids(&catalog), ["b", "c", "d"]);
    // A caller that took the table before the reload keeps using it.
    assert!(before.get("a").is_ok());
    let same = |id| std::ptr::eq(&**before.get(id).expect("known"), &**catalog.models().get(id).expect("known"));
    assert!(same("c") && !same("b"));
}

#[test]
fn reload_keeps_a_newly_broken_model_and_loads_a_fixed_one() {
    let folder = folder();
    write(folder.path(), "a", "1");
    write(folder.path(), "b", "{% broken %}");
    let catalog = open(sources(&folder));
    assert!(catalog.models().get("b").is_err());
    write(folder.path(), "a", "{% broken, too %}");
    write(folder.path(), "b", "2");
    let reloaded = catalog.reload().expect("reloads");
    assert_eq!((reloaded.loaded, reloaded.failed), (names(&["b"]), names(&["a"])));
    assert!(catalog.models().get("a").is_ok() && catalog.models().get("b").is_ok());
    let models = catalog.models();
    assert!(models.entry("a").expect("known").1.problem.is_some(), "the table reports the failed reload");
    assert_eq!(catalog.reload().expect("reloads").failed, names(&["a"]), "the second reload fails too");
}

#[test]
fn last_model_can_be_removed_and_another_loaded() {
    let folder = folder();
    write(folder.path(), "a", "1");
    let catalog = open(sources(&folder));
    fs::remove_dir_all(folder.path().join("a")).expect("it is there");
    assert_eq!(catalog.reload().expect("reloads").removed, names(&["a"]));
    write(folder.path(), "b", "1");
    assert_eq!(catalog.reload().expect("reloads").loaded, names(&["b"]));
}

/// llama.cpp's `mmproj` files are parts of models.
#[test]
fn towers_of_gguf_models_are_not_listed() {
    let folder = folder();
    let text = File::new().text("general.architecture", "gemma3").text("tokenizer.chat_template", "t");
    text.write_to(&folder.path().join("tiny.gguf"));
    File::new().text("general.architecture", "clip").write_to(&folder.path().join("mmproj-tiny.gguf"));
    assert_eq!(ids(&open(sources(&folder))), names(&["tiny"]));
}

#[test]
fn empty_model_folder_is_rejected() {
    let folder = folder();
    refused("catalog/empty", &folder, sources(&folder));
}

#[test]
fn model_with_an_invalid_tokenizer_loads_without_token_ids() {
    let folder = folder();
    write(folder.path(), "a", "1");
    fs::write(folder.path().join("a/tokenizer.json"), "nonsense").expect("a file");
    let catalog = open(sources(&folder));
    let models = catalog.models();
    let model = models.get("a").expect("loads");
    let problem = model.model.tokenizer_problem().expect("the tokenizer is broken");
    error_texts::check("catalog/tokenizer", problem.replace(&folder.path().display().to_string(), "FOLDER"));
}

#[test]
fn family_model_loads_despite_an_invalid_template() {
    let folder = folder();
    write(folder.path(), "a", "{% broken %}");
    fs::write(folder.path().join("a/config.json"), r#"{"model_type": "deepseek_v32"}"#).expect("a file");
    assert!(open(sources(&folder)).models().get("a").is_ok());
}

/// A pinned adapter always renders.
#[tokio::test(flavor = "multi_thread")]
async fn pinned_adapter_renders_despite_an_invalid_template() {
    let folder = folder();
    write(folder.path(), "a", "{% broken %}");
    write(folder.path(), "b", "1");
    let service = serve_catalog(open(sources(&folder)).into(), None).await;
    let mut client = RenderServiceClient::new(service.channel().await);
    let mut render = async |adapter: Option<&str>| {
        let options = pb::RenderOptions { adapter: adapter.map(str::to_owned), ..Default::default() };
        let request = request(conversation(vec![text("user", "hello")]));
        client.render(pb::RenderRequest { model: "a".to_owned(), options: Some(options), ..request }).await
    };
    let pinned = render(Some("chatml")).await.expect("renders").into_inner();
    assert_eq!(prompt(pinned), "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n");
    for adapter in [None, Some("tokenizer-template")] {
        let failed = render(adapter).await;
        is_failed("catalog/pinned-not-loaded", failed, Code::FailedPrecondition, "MODEL_NOT_LOADED", Some("model"));
    }
    let mut registry = RegistryServiceClient::new(service.channel().await);
    let request = pb::GetModelRequest { model: "a".to_owned() };
    let info = registry.get_model(request).await.expect("known").into_inner().model.expect("a model");
    assert!(info.problem.contains("does not compile"), "{}", info.problem);
    let mut explain = async |adapter: Option<&str>| {
        let adapter = adapter.map(str::to_owned);
        let request = pb::ExplainResolutionRequest { model: "a".to_owned(), adapter, ..Default::default() };
        registry.explain_resolution(request).await
    };
    assert_eq!(explain(Some("plain")).await.expect("explains").into_inner().resolution.expect("one").adapter, "plain");
    assert!(explain(None).await.is_err());
}

#[test]
fn configured_adapter_renders_despite_an_invalid_template() {
    let folder = folder();
    write(folder.path(), "a", "{% broken %}");
    let catalog = open(configured(&folder, "[[models]]\npath = 'a'\nadapter = 'llama3'"));
    let models = catalog.models();
    assert_eq!(models.get("a").expect("loads").adapter.adapter().name, "llama3");
    assert!(models.entry("a").expect("known").1.problem.is_none());
    let template = configured(&folder, "[[models]]\npath = 'a'\nadapter = 'tokenizer-template'");
    let error = ModelCatalog::open(template, Registry::default()).expect_err("the template does not compile");
    assert!(chain(&error).contains("does not compile"), "{}", chain(&error));
}

#[test]
fn a_request_can_pin_an_adapter_until_the_template_is_fixed() {
    let folder = folder();
    write(folder.path(), "a", "1");
    write(folder.path(), "b", "{% broken %}");
    let catalog = open(sources(&folder));
    let usable = |id: &str, pinned: Option<&str>| catalog.models().get_for(id, pinned).is_ok();
    assert!(usable("b", Some("plain")) && !usable("b", None));
    write(folder.path(), "a", "{% broken, too %}");
    write(folder.path(), "b", "2");
    catalog.reload().expect("reloads");
    assert!(["a", "b"].iter().all(|id| usable(id, None)), "the earlier state of a still renders");
}

#[test]
fn a_configuration_that_has_no_end_or_is_large_is_refused_and_the_models_stay() {
    let folder = folder();
    write(folder.path(), "a", "1");
    let sources = configured(&folder, "[[models]]\npath = 'a'");
    let config = sources.config.clone().expect("a file");
    let catalog = open(sources.clone());
    fs::remove_file(&config).expect("it exists");
    std::os::unix::fs::symlink("/dev/zero", &config).expect("a link");
    catalog.reload().expect_err("no regular file");
    refused("catalog/endless-config", &folder, sources.clone());
    fs::remove_file(&config).expect("it exists");
    let pipe = std::process::Command::new("mkfifo").arg(&config).status();
    assert!(pipe.expect("mkfifo runs").success());
    catalog.reload().expect_err("the pipe has no writer");
    let writer = std::thread::spawn({
        let config = config.clone();
        move || fs::write(config, "[[models]]\npath = 'a'").expect("it is read")
    });
    assert_eq!(ids(&open(sources.clone())), ["a"]);
    writer.join().expect("it wrote");
    fs::remove_file(&config).expect("it exists");
    fs::File::create(&config).and_then(|file| file.set_len(1 << 40)).expect("a sparse file");
    catalog.reload().expect_err("too large");
    refused("catalog/large-config", &folder, sources);
    assert_eq!(ids(&catalog), ["a"]);
}

#[test]
fn model_file_that_is_not_a_regular_file_is_rejected() {
    let folder = folder();
    write(folder.path(), "a", "1");
    std::os::unix::fs::symlink("/dev/zero", folder.path().join("a/generation_config.json")).expect("a link");
    refused("catalog/irregular-file", &folder, sources(&folder));
}

#[test]
fn failed_reload_changes_nothing() {
    let folder = folder();
    write(folder.path(), "a", "1");
    let catalog = open(configured(&folder, "[[models]]\npath = 'a'"));
    fs::write(folder.path().join("models.toml"), "models = 7").expect("a file");
    assert!(catalog.reload().is_err());
    assert_eq!(ids(&catalog), ["a"]);
}

#[test]
fn catalog_without_a_loadable_model_is_rejected() {
    let folder = folder();
    write(folder.path(), "a", "x\n{% broken %}");
    refused("catalog/template", &folder, sources(&folder));
}

#[test]
fn the_configuration_names_models_and_pins_adapters() {
    let folder = folder();
    write(folder.path(), "some-folder", "1");
    let config = "[[models]]\npath = 'some-folder'\nid = 'org/model'\naliases = ['m', 'latest']\nadapter = 'tagged'";
    let catalog = open(configured(&folder, config));
    assert_eq!(ids(&catalog), ["org/model"]);
    for name in ["org/model", "m", "latest", ""] {
        let models = catalog.models();
        let model = models.get(name).expect("known");
        assert_eq!(model.model.id, "org/model");
        assert_eq!(model.adapter.adapter().name, "tagged");
        error_texts::check("resolution/settings", &model.adapter.resolution.reason);
    }
}

#[test]
fn configuration_can_rename_a_model_of_the_models_folder() {
    let folder = folder();
    ["a", "b"].iter().for_each(|name| write(folder.path(), name, "1"));
    let mut sources = configured(&folder, "[[models]]\npath = './a'\nid = 'first'");
    sources.models = vec![folder.path().to_owned()];
    assert_eq!(ids(&open(sources)), ["b", "first"]);
}

#[test]
fn configuration_error_names_the_invalid_entry() {
    let folder = folder();
    ["a", "b"].iter().for_each(|name| write(folder.path(), name, "1"));
    let both = |a: &str, b: &str| format!("[[models]]\npath = 'a'\n{a}\n[[models]]\npath = 'b'\n{b}");
    refused("catalog/unknown-key", &folder, configured(&folder, "[[models]]\npath = 'a'\ncolour = 'red'"));
    refused("catalog/no-path", &folder, configured(&folder, "[[models]]\nid = 'a'"));
    refused("catalog/same-name", &folder, configured(&folder, &both("id = 'x'", "aliases = ['x']")));
    refused("catalog/same-path", &folder, configured(&folder, "[[models]]\npath = 'a'\n[[models]]\npath = './a'"));
    refused("catalog/empty-alias", &folder, configured(&folder, "[[models]]\npath = 'a'\naliases = ['']"));
    refused("catalog/unknown-adapter", &folder, configured(&folder, "[[models]]\npath = 'a'\nadapter = 'x'"));
    refused("catalog/absent", &folder, configured(&folder, "[[models]]\npath = 'nowhere'"));
    let unknown = "[[models]]\npath = 'a'\ncapabilities = ['SUPPORTS_MAGIC']";
    refused("catalog/unknown-capability", &folder, configured(&folder, unknown));
    let reserved = "[[models]]\npath = 'a'\ntoggles = { enable_thinking = true, messages = 'x' }";
    refused("catalog/reserved-toggle", &folder, configured(&folder, reserved));
}

/// transformers has parameters with these names, so that templates never get such arguments.
#[test]
fn a_toggle_of_a_reserved_name_is_refused() {
    let folder = folder();
    write(folder.path(), "a", "1");
    let names = [
        "messages",
        "tools",
        "documents",
        "chat_template",
        "tokenize",
        "add_generation_prompt",
        "continue_final_message",
    ];
    for reserved in names {
        let sources = configured(&folder, &format!("[[models]]\npath = 'a'\ntoggles = {{ {reserved} = true }}"));
        match ModelCatalog::open(sources, Registry::default()) {
            Err(CatalogError::ReservedToggle { name, .. }) => assert_eq!(name, reserved),
            other => panic!("{reserved}: {other:?}"),
        }
    }
}

/// The values are those of `ci/pools.yaml`. `cargo xtask chart` compares the file with the chart.
#[test]
fn the_configuration_that_the_chart_writes_is_valid() {
    let golden = fs::read_to_string(repository().join("deploy/chart/golden/pools.yaml")).expect("a file");
    let (_, file) = golden.split_once("  models.toml: |\n").expect("a configuration");
    let lines = file.lines().take_while(|line| line.is_empty() || line.starts_with("    "));
    let text: String = lines.map(|line| format!("{}\n", line.trim())).collect();
    let folder = folder();
    let path = folder.path().join("models.toml");
    fs::write(&path, text).expect("a file");
    let model = &config_file(&path).expect("a configuration")["models"][0];
    assert_eq!(model["eos_token_ids"], json!([151_645, 151_643]));
    let toggles =
        json!({"budget": 8192, "enable_thinking": false, "reasoning_effort": "low", "thinking": {"type": "disabled"}});
    assert_eq!(model["toggles"], toggles);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_configuration_overrides_capabilities() {
    let folder = folder();
    write(folder.path(), "a", "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}");
    let config = "[[models]]\npath = 'a'\ncapabilities = ['REQUIRES_STRICT_TURNS', 'SUPPORTS_TOOL_CALLS']";
    let service = serve_catalog(open(configured(&folder, config)).into(), None).await;
    let mut registry = RegistryServiceClient::new(service.channel().await);
    let models = registry.list_models(pb::ListModelsRequest {}).await.expect("lists").into_inner().models;
    let shown: Vec<_> = models[0].capabilities().collect();
    assert_eq!(shown, [pb::Capability::RequiresStrictTurns, pb::Capability::SupportsToolCalls]);
    let mut render = RenderServiceClient::new(service.channel().await);
    let said = || conversation(vec![text("system", "S"), text("user", "U")]);
    let by_config = render.render(request(said())).await.expect("renders").into_inner();
    assert_eq!(prompt(by_config), "user:[System]: S\n\nU;");
    // A request's override has priority over the configuration.
    let with = |capabilities: Vec<i32>| {
        let capabilities = Some(pb::CapabilityOverride { capabilities });
        let options = Some(pb::RenderOptions { capabilities, ..Default::default() });
        pb::RenderRequest { options, ..request(said()) }
    };
    let by_request = render.render(with(vec![pb::Capability::SupportsSystemRole.into()])).await.expect("renders");
    assert_eq!(prompt(by_request.into_inner()), "system:S;user:U;");
    for (unknown, case) in [(0, "catalog/unspecified-capability"), (99, "catalog/unassigned-capability")] {
        let status = render.render(with(vec![pb::Capability::SupportsSystemRole.into(), unknown])).await;
        is_failed(case, status, Code::InvalidArgument, "INVALID_REQUEST", Some("options.capabilities.capabilities[1]"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_do_not_expose_server_paths() {
    let folder = folder();
    ["no-tokenizer", "bad-tokenizer"].iter().for_each(|name| write(folder.path(), name, "x"));
    write(folder.path(), "bad-template", "{% broken %}");
    write(folder.path(), "bad-json", "x");
    fs::write(folder.path().join("bad-tokenizer/tokenizer.json"), "{").expect("a file");
    fs::write(folder.path().join("bad-json/config.json"), "{").expect("a file");
    let service = serve_catalog(open(sources(&folder)).into(), None).await;
    let mut render = RenderServiceClient::new(service.channel().await);
    let place = folder.path().display().to_string();
    for (model, reason, case) in [
        ("no-tokenizer", "NO_TOKENIZER", "catalog/no-tokenizer"),
        ("bad-tokenizer", "NO_TOKENIZER", "catalog/bad-tokenizer"),
        ("bad-template", "MODEL_NOT_LOADED", "catalog/bad-template"),
        ("bad-json", "MODEL_NOT_LOADED", "catalog/bad-json"),
    ] {
        let request = pb::RenderRequest {
            model: model.to_owned(),
            return_token_ids: true,
            ..request(conversation(vec![text("user", "hello")]))
        };
        let status = render.render(request).await.expect_err("the model cannot render this request");
        assert!(!status.message().contains(&place), "{}", status.message());
        is_failed::<()>(case, Err(status), Code::FailedPrecondition, reason, Some("model"));
    }
    let mut registry = RegistryServiceClient::new(service.channel().await);
    let models = registry.list_models(pb::ListModelsRequest {}).await.expect("lists").into_inner().models;
    let listed = format!("{models:?}");
    assert!(!listed.contains(&place), "{listed}");
    let with_problem: Vec<_> = models.iter().filter(|model| !model.problem.is_empty()).collect();
    assert!(with_problem.iter().map(|model| model.id.as_str()).eq(["bad-json", "bad-template"]), "{listed}");
    error_texts::check_rows("catalog/listed-problems", with_problem.iter().map(|model| &model.problem));
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_model_is_listed_with_its_problem_and_others_render() {
    let folder = folder();
    write(folder.path(), "good", "{{ messages[0].content }}");
    write(folder.path(), "bad", "x\n{% broken %}");
    let service = serve_catalog(open(sources(&folder)).into(), None).await;
    let mut render = RenderServiceClient::new(service.channel().await);
    let hello = |model: &str| pb::RenderRequest {
        model: model.to_owned(),
        ..request(conversation(vec![text("user", "hello")]))
    };
    assert_eq!(prompt(render.render(hello("good")).await.expect("renders").into_inner()), "hello");
    let bad = render.render(hello("bad")).await;
    is_failed("catalog/model-not-loaded", bad, Code::FailedPrecondition, "MODEL_NOT_LOADED", Some("model"));
    let mut registry = RegistryServiceClient::new(service.channel().await);
    let models = registry.list_models(pb::ListModelsRequest {}).await.expect("lists").into_inner().models;
    assert_eq!(models[0].id, "bad");
    error_texts::check("catalog/listed-problem", &models[0].problem);
    assert_eq!((models[1].id.as_str(), models[1].problem.as_str()), ("good", ""));
}

/// Writes the templates of the model `a`, by name.
fn write_named(folder: &TempDir, templates: &[(&str, &str)]) {
    write(folder.path(), "a", "");
    let templates = templates.iter().map(|(name, template)| json!({"name": name, "template": template}));
    let config = json!({"chat_template": templates.collect::<Vec<_>>()});
    fs::write(folder.path().join("a/tokenizer_config.json"), config.to_string()).expect("a file");
}

/// Returns a request that chooses a template, by its name or with a tool.
fn choosing(template: Option<&str>, with_tools: bool) -> pb::RenderRequest {
    let tool = tandem_common::pb::chat::v1::tool::Kind::ToolJson("{}".to_owned());
    let mut conversation = conversation(vec![text("user", "hello")]);
    conversation.tools = vec![tandem_common::pb::chat::v1::Tool { kind: Some(tool) }; usize::from(with_tools)];
    let options = pb::RenderOptions { template: template.map(str::to_owned), ..Default::default() };
    pb::RenderRequest { options: Some(options), ..request(conversation) }
}

#[tokio::test(flavor = "multi_thread")]
async fn named_template_choice_matches_transformers() {
    let folder = folder();
    write_named(&folder, &[("default", "D"), ("tool_use", "T"), ("rag", "R")]);
    let service = serve_catalog(open(sources(&folder)).into(), None).await;
    let mut client = RenderServiceClient::new(service.channel().await);
    let mut rendered =
        async |template: Option<&str>, with_tools: bool| client.render(choosing(template, with_tools)).await;
    for (template, with_tools, expected) in [
        (None, false, "D"),
        (None, true, "T"),
        (Some("default"), true, "D"),
        (Some("rag"), false, "R"),
        (Some("tool_use"), false, "T"),
    ] {
        let response = rendered(template, with_tools).await.expect("renders").into_inner();
        assert_eq!(prompt(response), expected, "{template:?} {with_tools}");
    }
    let unknown = rendered(Some("x"), false).await;
    is_failed("catalog/template-not-found", unknown, Code::NotFound, "TEMPLATE_NOT_FOUND", Some("options.template"));
}

/// transformers compiles a template when a call chooses it.
#[tokio::test(flavor = "multi_thread")]
async fn a_broken_named_template_fails_only_requests_that_choose_it() {
    let folder = folder();
    write_named(&folder, &[("default", "D"), ("tool_use", "{% broken %}"), ("rag", "{{ x"), ("other", "O")]);
    let catalog = open(sources(&folder));
    assert!(catalog.models().entry("a").expect("known").1.problem.is_none());
    let service = serve_catalog(catalog.into(), None).await;
    let mut client = RenderServiceClient::new(service.channel().await);
    let mut rendered =
        async |template: Option<&str>, with_tools: bool| client.render(choosing(template, with_tools)).await;
    for (template, with_tools, expected) in
        [(None, false, "D"), (Some("default"), true, "D"), (Some("other"), true, "O")]
    {
        assert_eq!(prompt(rendered(template, with_tools).await.expect("renders").into_inner()), expected);
    }
    for (template, with_tools, case) in [
        (Some("rag"), false, "catalog/broken-template"),
        (Some("tool_use"), false, "catalog/broken-tool-use"),
        (None, true, "catalog/broken-tool-use"),
    ] {
        let failed = rendered(template, with_tools).await;
        is_failed(case, failed, Code::FailedPrecondition, "MODEL_NOT_LOADED", Some("model"));
    }
    let unknown = rendered(Some("x"), false).await;
    is_failed("catalog/no-such-template", unknown, Code::NotFound, "TEMPLATE_NOT_FOUND", Some("options.template"));
    write_named(&folder, &[("tool_use", "T"), ("rag", "{{ x")]);
    assert!(open(sources(&folder)).models().get("a").is_ok());
    write_named(&folder, &[("rag", "{{ x")]);
    refused("catalog/only-broken-template", &folder, sources(&folder));
}

#[tokio::test(flavor = "multi_thread")]
async fn configured_facts_replace_those_that_the_files_show() {
    let folder = folder();
    let template = "{% for m in messages %}{{ m.content }}{% endfor %}{{ '<on>' if thinks is not defined or thinks else '<off>' }}";
    write(folder.path(), "a", template);
    let config =
        "[[models]]\npath = 'a'\ncapabilities = []\neos_token_ids = [7, 5]\ntoggles = { thinks = false, extra = 'x' }";
    let service = serve_catalog(open(configured(&folder, config)).into(), None).await;
    let mut registry = RegistryServiceClient::new(service.channel().await);
    let info = registry.get_model(pb::GetModelRequest::default()).await.expect("describes").into_inner();
    let info = info.model.expect("a model");
    assert!(info.capabilities.is_empty(), "an empty list means unknown");
    let configured = pb::FactSource::Configuration;
    let ends = info.facts.iter().filter(|fact| fact.name == "end_of_turn");
    let ends: Vec<_> = ends.map(|fact| (fact.value.as_str(), fact.source())).collect();
    assert_eq!(ends, [("7", configured), ("5", configured)]);
    let arguments = info.template_arguments.iter();
    let arguments: Vec<_> = arguments.map(|a| (a.name.as_str(), a.default_json.as_str(), a.source())).collect();
    assert_eq!(arguments, [("extra", "\"x\"", configured), ("thinks", "false", configured)]);

    let mut client = RenderServiceClient::new(service.channel().await);
    let mut rendered = async |args: &str| {
        let mut said = conversation(vec![text("system", "S"), text("user", "U")]);
        said.template_args_json = (!args.is_empty()).then(|| args.to_owned());
        client.render(request(said)).await.expect("renders").into_inner()
    };
    let response = rendered("").await;
    assert_eq!(response.output_spec.clone().expect("a spec").eos_token_ids, [5, 7]);
    assert!(response.warnings.is_empty(), "the caller sent no argument: {:?}", response.warnings);
    assert_eq!(prompt(response), "SU<off>", "the configured argument counts where the request sets none");
    assert_eq!(prompt(rendered(r#"{"thinks": true}"#).await), "SU<on>");
}

/// Without the argument, the template fails, and every probe with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_template_is_probed_with_its_configured_arguments() {
    let folder = folder();
    let template = "{% if mode is not defined %}{{ raise_exception('mode') }}{% endif %}{% for m in messages %}\
                    {% for b in m.content %}[{{ b.text }}]{% endfor %}<end>{% endfor %}";
    write(folder.path(), "a", template);
    let config = "[[models]]\npath = 'a'\ntoggles = { mode = 'chat' }";
    let service = serve_catalog(open(configured(&folder, config)).into(), None).await;
    let mut registry = RegistryServiceClient::new(service.channel().await);
    let info = registry.get_model(pb::GetModelRequest::default()).await.expect("describes").into_inner();
    let facts = info.model.expect("a model").facts;
    let fact = |name: &str| facts.iter().find(|fact| fact.name == name).map(|fact| fact.value.as_str());
    assert_eq!(fact("content.user.blocks"), Some("walked"));
    assert_eq!(fact("content.user.text"), Some("left out"));
    let mut client = RenderServiceClient::new(service.channel().await);
    let response = client.render(request(conversation(vec![text("user", "Hi")]))).await.expect("renders").into_inner();
    assert_eq!(prompt(response), "[Hi]<end>");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_contract_names_the_field_to_continue() {
    let folder = folder();
    write(
        folder.path(),
        "a",
        "{% for m in messages %}{{ m.role }}({{ m.reasoning_content }}){{ m.content }};{% endfor %}",
    );
    let service = serve_catalog(open(sources(&folder)).into(), None).await;
    let mut client = RenderServiceClient::new(service.channel().await);
    let mut rendered = async |field: &str, is_continued: Option<bool>| {
        let mut said = conversation(vec![text("assistant", "x")]);
        said.messages[0].reasoning_content = Some("because ".to_owned());
        let options = pb::RenderOptions {
            continue_final_message: is_continued,
            continue_final_field: Some(field.to_owned()),
            ..Default::default()
        };
        client.render(pb::RenderRequest { options: Some(options), ..request(said) }).await
    };
    for is_continued in [None, Some(true)] {
        let response = rendered("reasoning_content", is_continued).await.expect("renders").into_inner();
        assert_eq!(prompt(response), "assistant(because ");
    }
    let field = Some("options.continue_final_field");
    let closed = rendered("reasoning_content", Some(false)).await;
    is_failed("continue/closed", closed, Code::InvalidArgument, "INVALID_REQUEST", field);
    is_failed("continue/empty", rendered("", None).await, Code::InvalidArgument, "INVALID_REQUEST", field);
    let missing = rendered("name", None).await;
    is_failed(
        "continue/missing",
        missing,
        Code::InvalidArgument,
        "INVALID_REQUEST",
        Some("options.continue_final_message"),
    );
}

/// A caller of the service sees the names of all models only in ListModels.
#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_model_is_answered_without_a_list_of_all_models() {
    let folder = folder();
    ["alpha-secret", "beta-secret", "qwen3-8b"].iter().for_each(|name| write(folder.path(), name, "1"));
    let service = serve_catalog(open(sources(&folder)).into(), None).await;
    let mut client = RenderServiceClient::new(service.channel().await);
    let mut message = async |model: &str| {
        let request = request(conversation(vec![text("user", "x")]));
        let status = client.render(pb::RenderRequest { model: model.to_owned(), ..request }).await;
        status.expect_err("no model has the name").message().to_owned()
    };
    let messages = [message("zzz").await, message("").await, message("qwen3-8B").await];
    assert!(
        messages.iter().all(|message| !message.contains("secret") && message.contains("ListModels")),
        "{messages:?}"
    );
    assert!(messages[2].contains("qwen3-8b") && !messages[0].contains("qwen"), "{messages:?}");
}

/// DeepSeek's switches of thinking have one meaning: one in a request replaces the configured one.
#[tokio::test(flavor = "multi_thread")]
async fn a_switch_of_a_request_replaces_a_configured_one_of_another_name() {
    let folder = folder();
    write(folder.path(), "a", "");
    std::fs::remove_file(folder.path().join("a/tokenizer_config.json")).expect("a file");
    std::fs::write(folder.path().join("a/config.json"), r#"{"model_type": "deepseek_v32"}"#).expect("a file");
    let config = "[[models]]\npath = 'a'\ntoggles = { thinking = true }";
    let service = serve_catalog(open(configured(&folder, config)).into(), None).await;
    let mut client = RenderServiceClient::new(service.channel().await);
    let mut rendered = async |args: &str, messages| {
        let mut said = conversation(messages);
        said.template_args_json = (!args.is_empty()).then(|| args.to_owned());
        client.render(request(said)).await.expect("renders").into_inner()
    };
    let question = || vec![text("user", "Hi")];
    assert!(prompt(rendered("", question()).await).ends_with("<think>"));
    assert!(prompt(rendered(r#"{"enable_thinking": false}"#, question()).await).ends_with("</think>"));

    let mut answer = text("assistant", "Hello");
    answer.reasoning_content = Some("A greeting is polite.".to_owned());
    let response = rendered("", vec![text("user", "Hi"), answer, text("user", "Bye")]).await;
    let warnings: Vec<_> = response.warnings.iter().map(|w| (w.code(), w.path.as_str())).collect();
    let path = "conversation.messages[1].reasoning_content";
    assert_eq!(warnings, [(pb::WarningCode::ReasoningIgnored, path)], "earlier reasoning is not in the prompt");
}
