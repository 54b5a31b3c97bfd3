//! The tasks: short conversations, and the token ids that render-svc renders for each.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use tandem_common::pb::chat::v1::{ChatMessage, Conversation, chat_message};
use tandem_common::pb::generate::v1::generate_request::Input;
use tandem_common::pb::generate::v1::{GenerateRequest, ReturnOptions, Sampling, Stop, TokenIds};
use tandem_common::pb::render::v1::RenderRequest;
use tandem_common::pb::render::v1::render_response::Output;
use tandem_common::pb::render::v1::render_service_client::RenderServiceClient;
use tandem_common::pb::task::v1::RunTaskRequest;
use tonic::transport::Channel;

use super::call::Route;
use super::model;
use super::services::Services;
use super::task::{Answer, Task};

/// Number of different conversations. Their messages are too short for render-svc's tokenizer
/// cache.
const CONVERSATIONS: u64 = 256;
/// Number of tasks that show whether other services give the same answers.
const SAMPLE_TASKS: usize = 32;

/// All tasks.
#[derive(Debug, Clone)]
pub(super) struct Tasks(Arc<[Task]>);

impl Tasks {
    /// Prepares the tasks. Fails if the routes give different answers.
    pub(super) async fn prepare(services: &Services, tokens: u32) -> Result<Self> {
        let mut renderer = services.renderer().await?;
        let (mut direct, mut run_task) =
            (services.caller(Route::Direct).await?, services.caller(Route::RunTask).await?);
        let mut tasks = Vec::new();
        for number in 0..CONVERSATIONS {
            let mut task = task(&mut renderer, number, tokens).await?;
            task.answer = direct.ask(&task).await?.answer;
            run_task.measure(&task).await.context("RunTask does not give what gen-svc gives")?;
            ensure!(task.answer.ids.len() == tokens as usize, "an answer of {} tokens", task.answer.ids.len());
            tasks.push(task);
        }
        Ok(Self(tasks.into()))
    }

    /// Fails if other services give other answers. Warms these services up.
    pub(super) async fn check(&self, services: &Services) -> Result<()> {
        for route in [Route::Direct, Route::RunTask] {
            let mut caller = services.caller(route).await?;
            for task in &self.0[..SAMPLE_TASKS] {
                caller.measure(task).await?;
            }
        }
        Ok(())
    }

    /// Returns task `number` modulo the number of tasks.
    pub(super) fn at(&self, number: usize) -> &Task {
        &self.0[number % self.0.len()]
    }

    /// Returns the length of the first prompt, in tokens.
    pub(super) fn prompt_tokens(&self) -> usize {
        match &self.at(0).direct.input {
            Some(Input::TokenIds(tokens)) => tokens.ids.len(),
            _ => 0,
        }
    }
}

/// Returns a task without its answer.
async fn task(renderer: &mut RenderServiceClient<Channel>, number: u64, tokens: u32) -> Result<Task> {
    let run_task = RunTaskRequest {
        model: model::NAME.to_owned(),
        conversation: Some(conversation(number)),
        sampling: Some(Sampling { seed: Some(number), ..Sampling::default() }),
        stop: Some(Stop { max_new_tokens: Some(tokens), ..Stop::default() }),
        return_options: Some(ReturnOptions { token_ids: true, ..ReturnOptions::default() }),
        ..RunTaskRequest::default()
    };
    let direct = as_token_ids(renderer, &run_task).await?;
    Ok(Task { direct, run_task, answer: Answer::default() })
}

/// Returns the request that render-svc sends to gen-svc for a task.
async fn as_token_ids(renderer: &mut RenderServiceClient<Channel>, task: &RunTaskRequest) -> Result<GenerateRequest> {
    let RunTaskRequest { model, conversation, sampling, stop, return_options, .. } = task.clone();
    let request =
        RenderRequest { model: model.clone(), conversation, return_token_ids: true, ..RenderRequest::default() };
    let rendered = renderer.render(request).await?.into_inner();
    let Some(Output::Prompt(prompt)) = rendered.output else { bail!("the conversation became no prompt") };
    Ok(GenerateRequest {
        model,
        input: Some(Input::TokenIds(TokenIds { ids: prompt.token_ids })),
        sampling,
        stop,
        output_spec: rendered.output_spec,
        return_options,
        expected_tokenizer_sha256: rendered.fingerprint.map(|fingerprint| fingerprint.tokenizer_sha256),
        ..GenerateRequest::default()
    })
}

fn conversation(number: u64) -> Conversation {
    let messages = vec![
        message("system", "Answer in one sentence.".to_owned()),
        message("user", format!("{number}: why does the moon rise later every day?")),
        message("assistant", "Because it moves along its orbit.".to_owned()),
        message("user", format!("And why is it full after day {number}?")),
    ];
    Conversation { messages, ..Conversation::default() }
}

fn message(role: &str, text: String) -> ChatMessage {
    ChatMessage { role: role.to_owned(), content: Some(chat_message::Content::Text(text)), ..ChatMessage::default() }
}
