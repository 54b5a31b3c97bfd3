//! The Rust examples of `proto/docs`: a call of each method, with the code of tonic-prost-build.

use std::cell::RefCell;
use std::error::Error;

use tandem_common::pb;

// [start]
// `pb` has the generated code, as proto/clients/rust.md shows.
use pb::chat::v1::{ChatMessage, Conversation, chat_message};
use pb::generate::v1::control_service_client::ControlServiceClient;
use pb::generate::v1::generate_service_client::GenerateServiceClient;
use pb::generate::v1::{self as generation, Sampling, Stop};
use pb::render::v1::registry_service_client::RegistryServiceClient;
use pb::render::v1::render_service_client::RenderServiceClient;
use pb::render::v1::{
    self as rendering, parse_output_request, parsed_delta, render_response, render_result, stream_parse_output_request,
    stream_parse_output_response, validate_template_response,
};
use pb::task::v1::task_service_client::TaskServiceClient;
use pb::task::v1::{self as task, run_task_response};
use tonic::Request;
use tonic::transport::{Channel, Endpoint};

async fn connect(address: &str) -> Result<Channel, Box<dyn Error>> {
    Ok(Endpoint::from_shared(format!("http://{address}"))?.connect().await?)
}
// [end]

type Outcome = Result<(), Box<dyn Error>>;

thread_local! {
    static PRINTED: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps the output of an example. A test cannot read stdout.
macro_rules! print {
    ($($part:tt)*) => {{
        let part = format!($($part)*);
        PRINTED.with_borrow_mut(|text| text.push_str(&part));
    }};
}

macro_rules! println {
    ($($part:tt)*) => { print!("{}\n", format_args!($($part)*)) };
}

/// Runs the example of a method. Returns the lines that it prints.
pub(super) async fn output(method: &str, address: &str) -> Result<Vec<String>, Box<dyn Error>> {
    let channel = connect(address).await?;
    match method {
        "RenderService.Render" => render(channel).await,
        "RenderService.BatchRender" => batch_render(channel).await,
        "RenderService.ValidateTemplate" => validate_template(channel).await,
        "RenderService.Tokenize" => tokenize(channel).await,
        "RenderService.Detokenize" => detokenize(channel).await,
        "RenderService.ParseOutput" => parse_output(channel).await,
        "RenderService.StreamParseOutput" => stream_parse_output(channel).await,
        "RegistryService.ListModels" => list_models(channel).await,
        "RegistryService.GetModel" => get_model(channel).await,
        "RegistryService.ListAdapters" => list_adapters(channel).await,
        "RegistryService.ExplainResolution" => explain_resolution(channel).await,
        "GenerateService.Generate" => generate(channel).await,
        "GenerateService.GetLoadedModel" => get_loaded_model(channel).await,
        "ControlService.GetServer" => get_server(channel).await,
        "ControlService.GetLoad" => get_load(channel).await,
        "ControlService.FlushPrefixCache" => flush_prefix_cache(channel).await,
        "ControlService.Drain" => drain(channel).await,
        "TaskService.RunTask" => run_task(channel).await,
        _ => Err(format!("no example of {method}").into()),
    }?;
    Ok(PRINTED.take().lines().map(str::to_owned).collect())
}

async fn render(channel: Channel) -> Outcome {
    // [RenderService.Render]
    let content = Some(chat_message::Content::Text("Hi".into()));
    let message = ChatMessage { role: "user".into(), content, ..Default::default() };
    let request = rendering::RenderRequest {
        conversation: Some(Conversation { messages: vec![message], ..Default::default() }),
        return_token_ids: true,
        ..Default::default()
    };
    let mut client = RenderServiceClient::new(channel).max_decoding_message_size(264 << 20); // the default is 4 MB
    if let Some(render_response::Output::Prompt(prompt)) = client.render(request).await?.into_inner().output {
        println!("{}", prompt.text);
        println!("{} tokens", prompt.token_ids.len());
    }
    // [end]
    Ok(())
}

async fn batch_render(channel: Channel) -> Outcome {
    // [RenderService.BatchRender]
    let content = Some(chat_message::Content::Text("Hi".into()));
    let message = ChatMessage { role: "user".into(), content, ..Default::default() };
    let conversation = Some(Conversation { messages: vec![message], ..Default::default() });
    let requests = ["", "unknown"].map(|model| rendering::RenderRequest {
        model: model.into(),
        conversation: conversation.clone(),
        ..Default::default()
    });
    let batch = rendering::BatchRenderRequest { requests: requests.into() };
    let mut client = RenderServiceClient::new(channel).max_decoding_message_size(264 << 20);
    for result in client.batch_render(batch).await?.into_inner().results {
        match result.outcome {
            Some(render_result::Outcome::Response(response)) => {
                if let Some(render_response::Output::Prompt(prompt)) = response.output {
                    println!("{}", prompt.text);
                }
            }
            Some(render_result::Outcome::Failure(failure)) => println!("failed with code {}", failure.code),
            None => {}
        }
    }
    // [end]
    Ok(())
}

async fn validate_template(channel: Channel) -> Outcome {
    // [RenderService.ValidateTemplate]
    let request = rendering::ValidateTemplateRequest { template: "{{ messages }}\n{% if %}".into() };
    let response = RenderServiceClient::new(channel).validate_template(request).await?.into_inner();
    if let Some(validate_template_response::Outcome::Problem(problem)) = response.outcome {
        println!("problem in line {}", problem.line);
    }
    // [end]
    Ok(())
}

async fn tokenize(channel: Channel) -> Outcome {
    // [RenderService.Tokenize]
    let request = rendering::TokenizeRequest { text: "Hello world".into(), ..Default::default() };
    let response = RenderServiceClient::new(channel).tokenize(request).await?.into_inner();
    println!("{} tokens", response.token_ids.len());
    // [end]
    Ok(())
}

async fn detokenize(channel: Channel) -> Outcome {
    // [RenderService.Detokenize]
    let request = rendering::DetokenizeRequest { token_ids: vec![72, 105], ..Default::default() };
    println!("{}", RenderServiceClient::new(channel).detokenize(request).await?.into_inner().text);
    // [end]
    Ok(())
}

async fn parse_output(channel: Channel) -> Outcome {
    // [RenderService.ParseOutput]
    let call = r#"{"name": "get_weather", "arguments": {"city": "Paris"}}"#;
    let text = format!("Let me see.\n<tool_call>\n{call}\n</tool_call>");
    let output = Some(parse_output_request::Output::Text(text));
    let request = rendering::ParseOutputRequest { output, ..Default::default() };
    let response = RenderServiceClient::new(channel).parse_output(request).await?.into_inner();
    let message = response.output.and_then(|output| output.message).unwrap_or_default();
    if let Some(chat_message::Content::Text(text)) = message.content {
        println!("{text}");
    }
    for call in message.tool_calls {
        println!("{} {}", call.name, call.arguments_json);
    }
    // [end]
    Ok(())
}

async fn stream_parse_output(channel: Channel) -> Outcome {
    // [RenderService.StreamParseOutput]
    let start = stream_parse_output_request::Event::Start(rendering::ParseOutputStart::default());
    let texts = ["Let me see.\n<tool", "_call>\n{\"name\": \"get_weather\", ", "\"arguments\": {}}\n</tool_call>"];
    let texts = texts.map(|text| stream_parse_output_request::Event::Text(text.into()));
    let messages: Vec<_> = std::iter::once(start).chain(texts).collect();
    let messages = messages.into_iter().map(|event| rendering::StreamParseOutputRequest { event: Some(event) });
    let mut client = RenderServiceClient::new(channel);
    let mut events = client.stream_parse_output(tokio_stream::iter(messages)).await?.into_inner();
    while let Some(event) = events.message().await? {
        match event.event {
            Some(stream_parse_output_response::Event::Parsed(parsed)) => {
                for delta in parsed.deltas {
                    if let Some(parsed_delta::Part::Content(text)) = delta.part {
                        print!("{text}");
                    }
                }
            }
            Some(stream_parse_output_response::Event::Finished(finished)) => {
                let message = finished.output.and_then(|output| output.message).unwrap_or_default();
                for call in message.tool_calls {
                    println!("\n{}", call.name);
                }
            }
            None => {}
        }
    }
    // [end]
    Ok(())
}

async fn list_models(channel: Channel) -> Outcome {
    // [RegistryService.ListModels]
    let mut client = RegistryServiceClient::new(channel);
    for model in client.list_models(rendering::ListModelsRequest {}).await?.into_inner().models {
        println!("{} {}", model.id, model.adapter);
    }
    // [end]
    Ok(())
}

async fn get_model(channel: Channel) -> Outcome {
    // [RegistryService.GetModel]
    let request = rendering::GetModelRequest::default();
    let response = RegistryServiceClient::new(channel).get_model(request).await?.into_inner();
    let model = response.model.unwrap_or_default();
    println!("{} {}", model.architecture, model.context_length);
    // [end]
    Ok(())
}

async fn list_adapters(channel: Channel) -> Outcome {
    // [RegistryService.ListAdapters]
    let mut client = RegistryServiceClient::new(channel);
    for adapter in client.list_adapters(rendering::ListAdaptersRequest {}).await?.into_inner().adapters {
        println!("{}", adapter.name);
    }
    // [end]
    Ok(())
}

async fn explain_resolution(channel: Channel) -> Outcome {
    // [RegistryService.ExplainResolution]
    let request = rendering::ExplainResolutionRequest::default();
    let response = RegistryServiceClient::new(channel).explain_resolution(request).await?.into_inner();
    let resolution = response.resolution.unwrap_or_default();
    for rejected in resolution.rejected {
        println!("not {}", rejected.adapter);
    }
    println!("{}", resolution.adapter);
    // [end]
    Ok(())
}

async fn generate(channel: Channel) -> Outcome {
    // [GenerateService.Generate]
    let mut request = Request::new(generation::GenerateRequest {
        input: Some(generation::generate_request::Input::Prompt("Once upon a time".into())),
        sampling: Some(Sampling { temperature: Some(0.0), ..Default::default() }),
        stop: Some(Stop { max_new_tokens: Some(8), ..Default::default() }),
        ..Default::default()
    });
    request.set_timeout(std::time::Duration::from_mins(1));
    let mut stream = GenerateServiceClient::new(channel).generate(request).await?.into_inner();
    while let Some(response) = stream.message().await? {
        match response.event {
            Some(generation::generate_response::Event::Delta(delta)) => print!("{}", delta.text),
            Some(generation::generate_response::Event::Summary(summary)) => {
                println!("\n{} tokens", summary.usage.unwrap_or_default().completion_tokens);
            }
            _ => {}
        }
    }
    // [end]
    Ok(())
}

async fn get_loaded_model(channel: Channel) -> Outcome {
    // [GenerateService.GetLoadedModel]
    let request = generation::GetLoadedModelRequest::default();
    let response = GenerateServiceClient::new(channel).get_loaded_model(request).await?.into_inner();
    let model = response.model.unwrap_or_default();
    println!("{} {}", model.architecture, model.context_length);
    // [end]
    Ok(())
}

async fn get_server(channel: Channel) -> Outcome {
    // [ControlService.GetServer]
    let mut client = ControlServiceClient::new(channel);
    let server = client.get_server(generation::GetServerRequest {}).await?.into_inner();
    let model = server.model.unwrap_or_default(); // None while it loads
    println!("{} {}", model.architecture, server.max_running);
    // [end]
    Ok(())
}

async fn get_load(channel: Channel) -> Outcome {
    // [ControlService.GetLoad]
    let load = ControlServiceClient::new(channel).get_load(generation::GetLoadRequest {}).await?.into_inner();
    println!("{} running, {} queued", load.running, load.queued);
    // [end]
    Ok(())
}

async fn flush_prefix_cache(channel: Channel) -> Outcome {
    // [ControlService.FlushPrefixCache]
    let mut client = ControlServiceClient::new(channel);
    let response = client.flush_prefix_cache(generation::FlushPrefixCacheRequest {}).await?.into_inner();
    println!("{} blocks", response.flushed_blocks);
    // [end]
    Ok(())
}

async fn drain(channel: Channel) -> Outcome {
    // [ControlService.Drain]
    ControlServiceClient::new(channel).drain(generation::DrainRequest {}).await?;
    println!("draining");
    // [end]
    Ok(())
}

async fn run_task(channel: Channel) -> Outcome {
    // [TaskService.RunTask]
    let content = Some(chat_message::Content::Text("Why is the sky blue?".into()));
    let message = ChatMessage { role: "user".into(), content, ..Default::default() };
    let mut request = Request::new(task::RunTaskRequest {
        conversation: Some(Conversation { messages: vec![message], ..Default::default() }),
        sampling: Some(Sampling { temperature: Some(0.0), ..Default::default() }),
        stop: Some(Stop { max_new_tokens: Some(8), ..Default::default() }),
        ..Default::default()
    });
    request.set_timeout(std::time::Duration::from_mins(1));
    let mut stream = TaskServiceClient::new(channel).run_task(request).await?.into_inner();
    while let Some(response) = stream.message().await? {
        match response.event {
            Some(run_task_response::Event::Delta(delta)) => print!("{}", delta.text),
            Some(run_task_response::Event::Finished(finished)) => {
                println!("\n{} tokens", finished.usage.unwrap_or_default().completion_tokens);
            }
            _ => {}
        }
    }
    // [end]
    Ok(())
}
