//! Between the contracts and the domain. Whole messages are taken apart, so that a new field does not compile until someone has
//! decided what it does.

mod chat;
mod response;
pub(super) mod task;

use tandem_common::pb::chat::v1 as pb_chat;
use tandem_common::pb::render::v1 as pb;

use response::CAPABILITY;
pub(super) use response::{adapter_info, model_info, offsets, rendered, resolution, result, template};

use crate::adapters::Dialect;
use crate::capabilities::Capabilities;
use crate::chat::{Conversation, Invalid};
use crate::clock;
use crate::limits::Limits;
use crate::render::{ControlTokens, Normalization, RenderJob, RenderOptions};

pub(super) fn render_job(request: pb::RenderRequest) -> Result<RenderJob, Invalid> {
    let pb::RenderRequest { model, conversation, options, return_token_ids, return_offsets } = request;
    let conversation = self::conversation(conversation)?;
    let options = render_options(options.unwrap_or_default())?;
    Ok(RenderJob { model, conversation, options, return_token_ids, return_offsets })
}

pub(super) fn conversation(conversation: Option<pb_chat::Conversation>) -> Result<Conversation, Invalid> {
    conversation.map_or_else(|| Ok(Conversation::default()), chat::conversation)
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
    } = options;
    Ok(RenderOptions {
        add_generation_prompt,
        continue_final_message: continue_final_message.unwrap_or(false),
        adapter,
        now: render_time.as_deref().map_or_else(|| Ok(clock::now()), clock::parse)?,
        normalization: self::normalization(normalization)?,
        template,
        control_tokens: self::control_tokens("control_tokens", control_tokens)?,
        capabilities: capabilities.map(self::capabilities).transpose()?,
        dialect: Dialect::Contract,
        limits: Limits::default(),
    })
}

fn normalization(number: i32) -> Result<Normalization, Invalid> {
    match pb::Normalization::try_from(number) {
        Ok(pb::Normalization::Unspecified | pb::Normalization::Capability) => Ok(Normalization::Capability),
        Ok(pb::Normalization::None) => Ok(Normalization::None),
        Err(_) => Err(unknown("normalization", number)),
    }
}

pub(super) fn control_tokens(field: &str, number: i32) -> Result<ControlTokens, Invalid> {
    match pb::ControlTokens::try_from(number) {
        Ok(pb::ControlTokens::Unspecified | pb::ControlTokens::Tokens) => Ok(ControlTokens::Tokens),
        Ok(pb::ControlTokens::Literal) => Ok(ControlTokens::Literal),
        Err(_) => Err(unknown(field, number)),
    }
}

fn capabilities(given: pb::CapabilityOverride) -> Result<Capabilities, Invalid> {
    let pb::CapabilityOverride { capabilities } = given;
    let mut names = Vec::with_capacity(capabilities.len());
    for (i, number) in capabilities.into_iter().enumerate() {
        let known = pb::Capability::try_from(number).ok().filter(|known| *known != pb::Capability::Unspecified);
        let known = known.ok_or_else(|| unknown(&format!("capabilities[{i}]"), number))?;
        names.extend(known.as_str_name().strip_prefix(CAPABILITY));
    }
    Capabilities::from_names(names).map_err(|problem| Invalid::new("capabilities", problem))
}

fn unknown(field: &str, number: i32) -> Invalid {
    Invalid::new(field, format!("{number} is unknown to this server"))
}
