//! Cold start: the time from a model's files to its first prompt.

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use render_svc::catalog::{ModelTable, ServedModel};
use render_svc::cli::json;
use render_svc::limits::Limits;
use render_svc::render::render;
use tandem_template::LocalTime;

use super::transformers::Transformers;
use crate::stats::{ratio, show};

pub(crate) async fn measure(tokenizers: &Path, mut peer: Option<&mut Transformers>) -> Result<()> {
    println!("\ncold start: files to first prompt");
    let mut folders: Vec<_> = fs::read_dir(tokenizers)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    folders.sort();
    for folder in folders.iter().filter(|folder| has_template(folder)) {
        let start = Instant::now();
        let models = ModelTable::from(ServedModel::load(folder)?);
        let request = r#"{"messages": [{"role": "user", "content": "Hello"}]}"#;
        render(&models, json::request(request, LocalTime::EPOCH)?, &Limits::default())?;
        let ours = start.elapsed();
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let theirs = match peer.as_deref_mut() {
            Some(peer) => peer.cold(folder).await?,
            None => None,
        };
        match theirs {
            Some(theirs) => {
                println!(
                    "  {name:<14} tandem {}, transformers {} ({:.1} ×)",
                    show(ours),
                    show(theirs),
                    ratio(theirs, ours)
                );
            }
            None => println!("  {name:<14} tandem {}", show(ours)),
        }
    }
    Ok(())
}

fn has_template(folder: &Path) -> bool {
    let config = fs::read_to_string(folder.join("tokenizer_config.json")).unwrap_or_default();
    config.contains("\"chat_template\"") && folder.join("tokenizer.json").exists()
}
