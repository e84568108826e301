//! What a demonstration says at its end: a table, or JSON.

use anyhow::{Result, bail};
use remanent_tatp::recovery::{Plan, Timeline};
use serde_json::{Value, json};

use crate::command::output::say;

/// One policy, and what was seen of it.
pub(super) struct Observed {
    pub(super) name: &'static str,
    /// Part of all index entries that is in the pool.
    pub(super) share: f64,
    pub(super) plan: Plan,
    pub(super) timeline: Timeline,
}

pub(super) fn print(observed: &[Observed]) {
    say!(
        "\n{:<10} {:>8} {:>12} {:>13} {:>10} {:>12}",
        "policy",
        "in pool",
        "before",
        "first answer",
        "work lost",
        "recovered"
    );
    for Observed { name, share, timeline, .. } in observed {
        let recovered = match timeline.recovered_ms() {
            Some(at_ms) => format!("{at_ms:.0} ms"),
            None => "not yet".to_owned(),
        };
        say!(
            "{name:<10} {:>6.0} % {:>8.0} k/s {:>10.0} ms {:>7.0} ms {recovered:>12}",
            share * 100.0,
            timeline.full_ktps,
            timeline.first_ms,
            timeline.lost_ms()
        );
    }
}

pub(super) fn print_json(observed: &[Observed]) {
    say!("{:#}", json!({ "policies": observed.iter().map(to_json).collect::<Vec<_>>() }));
}

fn to_json(observed: &Observed) -> Value {
    let Observed { name, share, plan, timeline } = observed;
    let Plan { subscribers, users, threads, latency_ns, .. } = plan;
    json!({
        "policy": name,
        "in_pool_percent": share * 100.0,
        "subscribers": subscribers,
        "users": users,
        "rebuild_threads": threads,
        "latency_ns": latency_ns,
        "full_ktps": timeline.full_ktps,
        "first_answer_ms": timeline.first_ms,
        "lost_ms": timeline.lost_ms(),
        "recovered_ms": timeline.recovered_ms(),
        "worst_p99_us": timeline.p99_us(),
        "long_transactions": timeline.long_transactions,
        "before": timeline.before,
        "after": timeline.after,
    })
}

/// Fails if a statement of a long transaction was lost, or took effect twice.
pub(super) fn check_exact(observed: &[Observed]) -> Result<()> {
    for Observed { name, timeline, .. } in observed {
        if let Some(wrong) = timeline.long_transactions.iter().find(|of| !of.is_exact()) {
            bail!(
                "{name}: statements of transaction {} did not take effect exactly once: {} were \
                 acknowledged before the kill, {} were there after it, and of {} at the end its row \
                 counts {}; please report this with the arguments of this run",
                wrong.token,
                wrong.acknowledged,
                wrong.resumed,
                wrong.committed,
                wrong.counted
            );
        }
    }
    Ok(())
}
