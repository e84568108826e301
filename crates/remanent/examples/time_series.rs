//! A store of time series: samples by their time, averages over windows of time, and retention.
//!
//! ```text
//! time_series POOL record SERIES          samples from the standard input: lines UNIX_MS VALUE
//! time_series POOL range SERIES FROM TO   the samples of a time, TO excluded
//! time_series POOL average SERIES FROM TO WINDOW_MS
//! time_series POOL forget SERIES BEFORE   removes the samples before a time
//! time_series POOL list
//! ```
//!
//! A series is a [`BlinkTree`] under a root of its own. Why not one of the others:
//!
//! - A [`Log`](remanent::Log) takes one fence for any number of samples, and drops its front as a
//!   whole. But a record is found by its position alone: a range of time would need an index of
//!   positions beside it, and a late sample would be out of order.
//! - An [`AppendVector`](remanent::AppendVector) gives slices of samples without a copy, and equal
//!   intervals would need no index. But its front cannot be dropped.
//! - A tree of all series, with keys of name and time, would put samples in the middle:
//!   `bulk_load` is fast only behind the last key, where it writes whole leaves for four fences.

use std::error::Error;
use std::io::BufRead;
use std::ops::ControlFlow;

use remanent::{BlinkTree, Pool, Result};

/// Samples that are made durable together.
const CHUNK_LEN: usize = 500;
/// Roots of series are named so.
const ROOT_PREFIX: &str = "series ";

/// Samples by their time in milliseconds since 1970. Keys and values of 8 bytes lie in the leaves
/// themselves, so that a sample that comes late takes one fence.
struct TimeSeries {
    samples: BlinkTree<i64, f64>,
}

/// The average of a window of time that has samples.
struct Average {
    start_unix_ms: i64,
    count: u64,
    sum: f64,
}

impl TimeSeries {
    fn open_or_create(pool: &Pool, name: &str) -> Result<Self> {
        Ok(TimeSeries {
            samples: BlinkTree::open_or_create(pool, &format!("{ROOT_PREFIX}{name}"))?,
        })
    }

    /// Opens a series that must be there.
    fn open(pool: &Pool, name: &str) -> Result<Self> {
        Ok(TimeSeries { samples: BlinkTree::open(pool, &format!("{ROOT_PREFIX}{name}"))? })
    }

    /// Adds samples. A crash leaves a beginning of them. A second sample of one time replaces the
    /// first, so it does no harm to send samples again that were not acknowledged.
    fn record(&self, samples: &[(i64, f64)]) -> Result<()> {
        self.samples.bulk_load(samples.iter().copied())?;
        Ok(())
    }

    /// The averages of the samples from `start` up to `end`, over windows that begin at multiples
    /// of `window_ms`. Windows without samples are left out.
    fn averages(&self, start: i64, end: i64, window_ms: i64) -> Result<Vec<Average>> {
        let mut averages: Vec<Average> = Vec::new();
        // Without a copy of each sample, as `range` would make it.
        self.samples.ascend(start..end, |&unix_ms, &value| {
            let start_unix_ms = unix_ms - unix_ms.rem_euclid(window_ms);
            match averages.last_mut() {
                Some(average) if average.start_unix_ms == start_unix_ms => {
                    average.count += 1;
                    average.sum += value;
                }
                _ => averages.push(Average { start_unix_ms, count: 1, sum: value }),
            }
            ControlFlow::Continue(())
        })?;
        Ok(averages)
    }

    /// Removes the samples before a time, and returns how many. A crash in the middle leaves the
    /// later ones of them; the next call removes these.
    fn forget(&self, before_unix_ms: i64) -> Result<u64> {
        self.samples.remove_range(..before_unix_ms)
    }
}

/// Records the samples of the standard input, and says up to where they are durable.
fn record(series: &TimeSeries) -> Result<(), Box<dyn Error>> {
    let mut lines = std::io::stdin().lock().lines();
    loop {
        let chunk = lines.by_ref().take(CHUNK_LEN).map(|line| sample(&line?));
        let chunk = chunk.collect::<Result<Vec<_>, _>>()?;
        let Some((last_unix_ms, _)) = chunk.last() else { return Ok(()) };
        series.record(&chunk)?;
        println!("recorded up to {last_unix_ms}");
    }
}

fn sample(line: &str) -> Result<(i64, f64), Box<dyn Error>> {
    let (unix_ms, value) = line.split_once(' ').ok_or("a line has no value")?;
    Ok((unix_ms.parse()?, value.parse()?))
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [path, command @ ..] = &arguments[..] else {
        return Err("usage: time_series POOL record|range|average|forget|list ...".into());
    };
    let pool = Pool::options().size_max(1 << 30).open_or_create(path)?;
    match command {
        ["record", name] => record(&TimeSeries::open_or_create(&pool, name)?)?,
        ["range", name, start, end] => {
            let (start, end): (i64, i64) = (start.parse()?, end.parse()?);
            for sample in TimeSeries::open(&pool, name)?.samples.range(start..end) {
                let (unix_ms, value) = sample?;
                println!("{unix_ms} {value}");
            }
        }
        ["average", name, start, end, window_ms] => {
            let window_ms = window_ms.parse()?;
            if window_ms < 1 {
                return Err("a window has at least one millisecond".into());
            }
            let series = TimeSeries::open(&pool, name)?;
            for average in series.averages(start.parse()?, end.parse()?, window_ms)? {
                let Average { start_unix_ms, count, sum } = average;
                println!("{start_unix_ms} {} {count}", sum / count as f64);
            }
        }
        ["forget", name, before] => {
            let count = TimeSeries::open(&pool, name)?.forget(before.parse()?)?;
            println!("removed {count} samples");
        }
        ["list"] => {
            for root in pool.roots()? {
                if let Some(name) = root.name.strip_prefix(ROOT_PREFIX) {
                    let series = TimeSeries::open(&pool, name)?;
                    let last = series.samples.last()?.map(|(unix_ms, _)| unix_ms);
                    println!("{name}: {} samples, the last at {last:?}", series.samples.len()?);
                }
            }
        }
        _ => return Err(format!("{command:?} is no command of a time series store").into()),
    }
    Ok(())
}
