//! Rendering: conversations to prompts, by adapter, over gRPC and from the command line.

mod batch;
mod cancellation;
mod capabilities;
mod catalog;
mod cli;
mod content_blocks;
mod control_tokens;
mod conversations;
mod corpus;
mod deepseek;
mod deepseek_arguments;
mod deepseek_revisions;
mod deepseek_templates;
mod dialects;
mod facts;
mod formats;
mod gemma4;
mod gemma4_revisions;
mod golden;
mod lost;
mod new_family;
mod origins;
mod output_spec;
mod prefix;
mod rewriting;
mod turn_ends;
