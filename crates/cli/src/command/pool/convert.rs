//! `remanent pool convert`.

use std::process::ExitCode;

use anyhow::Context;
use remanent_server::store;
use serde_json::json;

use super::{Target, progress};
use crate::command::opening::open_as_made;
use crate::command::output::say;

pub(super) fn run(target: &Target) -> anyhow::Result<ExitCode> {
    let path = target.path.display();
    let (pool, _) = open_as_made(&target.options(), &target.path)?;
    let progress = progress("converting the entries");
    let converted = store::convert(&pool, |count| {
        progress.set_message(format!("{count} entries copied"));
    });
    progress.finish_and_clear();
    let converted = converted
        .with_context(|| format!("the entries of {path} stay as they are, and can be served so"))?;
    match converted {
        _ if target.json => say!("{:#}", json!({"path": target.path, "entries": converted})),
        Some(entries) => say!("{path} is converted: {entries} entries are in an ExtendibleMap"),
        None => say!("{path} has no entries to convert"),
    }
    Ok(ExitCode::SUCCESS)
}
