//! `remanent pool convert`.

use std::process::ExitCode;

use anyhow::{Context, bail};
use remanent_server::store::{self, Conversion};
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
    if store::has_two_maps(&pool)? {
        bail!(
            "{path} has entries in two maps, because an older version has served it since a newer one, and \
             stored something; nothing is removed; serve a copy of the pool from before that"
        );
    }
    let converted = converted
        .with_context(|| format!("the entries of {path} stay as they are, and can be served so"))?;
    let (entries, what) = match converted {
        Conversion::Moved(entries) => {
            (Some(entries), format!("is converted: {entries} entries are in an ExtendibleMap"))
        }
        Conversion::EmptyRemoved => {
            (None, "has no empty map of an older version any more".to_owned())
        }
        Conversion::Unneeded => (None, "has no entries to convert".to_owned()),
    };
    if target.json {
        say!("{:#}", json!({"path": target.path, "entries": entries}));
    } else {
        say!("{path} {what}");
    }
    Ok(ExitCode::SUCCESS)
}
