//! The fences of each transaction of TATP, counted.

use anyhow::Result;
use remanent_engine::Database;
use remanent_pmem::Emulation;
use remanent_tatp::{Client, Kind, Mix, Population, Tables};

use crate::cleanup::Scratch;
use crate::measure::Samples;
use crate::memory::counting::Counting;
use crate::report::Report;
use crate::setup::Setup;

/// Subscribers: their number makes no difference.
const SUBSCRIBERS: u32 = 1_000;
/// Requests of each kind that change something, and are counted.
const REQUESTS: usize = 1_000;

/// Counts the fences of requests that find what they ask for.
///
/// # Errors
///
/// When a pool cannot be made, or a request fails.
pub(super) fn count(setup: &Setup, report: &mut Report) -> Result<()> {
    let scratch = Scratch::new(&setup.dir)?;
    let pool = Counting::pool(scratch.path(), Emulation::None)?;
    let database = Database::create(&pool, "tatp")?;
    Population::new(SUBSCRIBERS).load(&Tables::create(&database)?)?;
    let (client, mut mix) = (Client::new(&database)?, Mix::new(SUBSCRIBERS, 7));
    for (kind, _) in Kind::ALL {
        let mut samples = Samples::default();
        while samples.runs() < REQUESTS {
            let request = mix.draw_of(kind);
            let before = pool.medium().fences();
            if client.run(&request)? {
                samples.push((pool.medium().fences() - before) as f64);
            }
        }
        let against = format!(
            "the most usual; {:.3} in the mean, with folding, freeing, tiles and divisions of indexes",
            samples.mean()
        );
        report.claim(&id(kind), &samples, "fences", against, None);
    }
    Ok(())
}

fn id(kind: Kind) -> String {
    format!("engine.fences.{}", kind.name().to_lowercase())
}
