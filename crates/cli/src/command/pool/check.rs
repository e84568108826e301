//! `remanent pool check`.

use std::process::ExitCode;

use remanent::check::{Contradiction, FileReport, check_file};
use remanent_server::store::TREE_ROOT;
use serde_json::json;

use super::{Target, progress};
use crate::command::output::{complain, say, shown};

pub(super) fn run(target: &Target) -> anyhow::Result<ExitCode> {
    let progress = progress("checking the pool");
    let mut report = check_file(&target.options(), &target.path, |root| {
        progress.set_message(format!("checking {}", shown(root)));
    })?;
    // The content of a damaged structure cannot be compared.
    if report.is_whole() {
        progress.set_message("comparing the sorted sets");
        report.contradictions = check_collections(target)?;
    }
    progress.finish_and_clear();
    for root in &report.unchecked {
        complain(format_args!(
            "warning: the content of root {} was not checked: type {} is known to its program only",
            root.name, root.root_type.name
        ));
    }
    if target.json {
        say!("{:#}", to_json(target, &report));
    } else {
        print(target, &report);
    }
    Ok(if report.is_whole() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn check_collections(target: &Target) -> anyhow::Result<Vec<Contradiction>> {
    let pool = target.options().inspect(&target.path)?;
    let found = remanent_server::check_collections(&pool)?;
    let to_contradiction =
        |what| Contradiction { root: Some(TREE_ROOT.to_owned()), offset: None, what };
    Ok(found.into_iter().map(to_contradiction).collect())
}

fn print(target: &Target, report: &FileReport) {
    let path = target.path.display();
    if report.is_whole() {
        say!("{path} is whole: {} chunks, {} in use", report.chunks, report.chunks_used);
        return;
    }
    report.contradictions.iter().for_each(|contradiction| say!("{contradiction}"));
    if report.untold > 0 {
        say!("and {} more", report.untold);
    }
    say!("{} violations in {path}", report.count());
}

fn to_json(target: &Target, report: &FileReport) -> serde_json::Value {
    let violations = report.contradictions.iter().map(|contradiction| {
        let Contradiction { root, offset, what } = contradiction;
        json!({"root": root, "offset": offset, "what": what})
    });
    json!({
        "path": target.path,
        "chunks": report.chunks,
        "chunks_used": report.chunks_used,
        "roots_skipped": report.unchecked.iter().map(|root| &root.name).collect::<Vec<_>>(),
        "violations": violations.collect::<Vec<_>>(),
        "violations_untold": report.untold,
    })
}
