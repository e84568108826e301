//! `remanent pool convert`.

use std::process::ExitCode;

use anyhow::{Context, bail};
use remanent_server::store::{self, TwoMaps};
use serde_json::json;

use super::{Target, progress};
use crate::command::opening::open_as_made;
use crate::command::output::say;

pub(super) fn run(target: &Target, merge: bool) -> anyhow::Result<ExitCode> {
    let path = target.path.display();
    let (pool, _) = open_as_made(&target.options(), &target.path)?;
    let progress = progress("converting the entries");
    let two_maps = if merge { TwoMaps::Merge } else { TwoMaps::Refuse };
    if !merge && store::has_two_maps(&pool)? {
        bail!(
            "{path} has entries in two maps, because an older version has served it since a newer \
             one; --merge keeps all, and of a key with two entries the later one"
        );
    }
    let converted = store::convert(&pool, two_maps, |count| {
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
