//! Conversion between the contracts and the domain. Messages are destructured completely, so that a
//! new field fails to compile until its meaning is decided.

mod chat;
pub(super) mod parse;
mod response;
pub(super) mod task;

use prost::Message as _;
use tandem_common::field::Path;
use tandem_common::pb::chat::v1 as pb_chat;
use tandem_common::pb::render::v1 as pb;
use tandem_template::LocalTime;

use response::CAPABILITY;
pub(super) use response::{adapter_info, model_info, rendered, resolution, result, template, tokenized};

use crate::capabilities::Capabilities;
use crate::clock;
use crate::conversation::{Conversation, Invalid};
use crate::executor::Cost;
use crate::job::{ControlTokenPolicy, FinalMessage, Normalization, RenderJob, RenderOptions};
use crate::tokenize::TokenizeJob;

impl TryFrom<pb::RenderRequest> for RenderJob {
    type Error = Invalid;

    fn try_from(request: pb::RenderRequest) -> Result<Self, Invalid> {
        let pb::RenderRequest { model, conversation, options, return_token_ids, return_offsets, omit_media } = request;
        let conversation = conversation_of(conversation)?;
        let options = render_options(options.unwrap_or_default()).map_err(|invalid| invalid.within("options"))?;
        let token_ids = return_token_ids.into();
        Ok(Self { model, conversation, options, token_ids, return_offsets, omit_media, is_task: false })
    }
}

/// Returns the expected cost of rendering and tokenizing a request.
pub(super) fn cost(request: &pb::RenderRequest) -> Cost {
    let control_tokens = request.options.as_ref().map_or(0, |options| options.control_tokens);
    let is_plain = !request.return_offsets && control_tokens != i32::from(pb::ControlTokens::Literal);
    Cost::of(request.encoded_len(), is_plain)
}

pub(super) fn tokenize_job(request: pb::TokenizeRequest) -> Result<TokenizeJob, Invalid> {
    let pb::TokenizeRequest { model, text, add_special_tokens, return_offsets, control_tokens } = request;
    let control_tokens = self::control_tokens(control_tokens)?;
    Ok(TokenizeJob { model, text, add_special_tokens, return_offsets, control_tokens })
}

pub(super) fn conversation_of(conversation: Option<pb_chat::Conversation>) -> Result<Conversation, Invalid> {
    let converted = conversation.map_or_else(|| Ok(Conversation::default()), chat::conversation);
    converted.map_err(|invalid| invalid.within("conversation"))
}

fn render_options(options: pb::RenderOptions) -> Result<RenderOptions, Invalid> {
    let pb::RenderOptions {
        add_generation_prompt,
        continue_final_message,
        adapter,
        render_time,
        normalization,
        template,
        control_tokens,
        capabilities,
        continue_final_field,
    } = options;
    Ok(RenderOptions {
        add_generation_prompt,
        continue_final_message: final_message(continue_final_message, continue_final_field)?,
        adapter,
        now: render_time.as_deref().map_or_else(|| Ok(LocalTime::now()), clock::parse)?,
        normalization: self::normalization(normalization)?,
        template,
        control_tokens: self::control_tokens(control_tokens)?,
        capabilities: capabilities.map(self::capabilities).transpose()?,
    })
}

/// A field without a flag is continued.
fn final_message(is_continued: Option<bool>, field: Option<String>) -> Result<Option<FinalMessage>, Invalid> {
    let invalid = |problem: &str| Err(Invalid::new("continue_final_field", problem));
    match (is_continued, field) {
        (is_continued, None) => Ok(is_continued.map(FinalMessage::from)),
        (_, Some(field)) if field.is_empty() => invalid("must not be empty"),
        (Some(false), Some(_)) => invalid("cannot be set if continue_final_message is false"),
        (_, Some(field)) => Ok(Some(FinalMessage::Continued(field))),
    }
}

fn normalization(number: i32) -> Result<Normalization, Invalid> {
    match pb::Normalization::try_from(number) {
        Ok(pb::Normalization::Unspecified | pb::Normalization::Capability) => Ok(Normalization::Capability),
        Ok(pb::Normalization::None) => Ok(Normalization::None),
        Err(_) => Err(unknown("normalization", number)),
    }
}

fn control_tokens(number: i32) -> Result<ControlTokenPolicy, Invalid> {
    match pb::ControlTokens::try_from(number) {
        Ok(pb::ControlTokens::Unspecified | pb::ControlTokens::Tokens) => Ok(ControlTokenPolicy::Tokens),
        Ok(pb::ControlTokens::Literal) => Ok(ControlTokenPolicy::Literal),
        Err(_) => Err(unknown("control_tokens", number)),
    }
}

fn capabilities(given: pb::CapabilityOverride) -> Result<Capabilities, Invalid> {
    let pb::CapabilityOverride { capabilities } = given;
    let mut names = Vec::with_capacity(capabilities.len());
    for (i, number) in capabilities.into_iter().enumerate() {
        let known = pb::Capability::try_from(number).ok().filter(|known| *known != pb::Capability::Unspecified);
        let known = known.ok_or_else(|| unknown(Path::from("capabilities").key("capabilities").index(i), number))?;
        names.extend(known.as_str_name().strip_prefix(CAPABILITY));
    }
    Capabilities::from_names(names).map_err(|problem| Invalid::new("capabilities", problem))
}

fn unknown(field: impl Into<Path>, number: i32) -> Invalid {
    Invalid::new(field, format!("{number} is unknown to this server"))
}
