//! Cost of the medium on this machine: nvramdisk's Tables 4 and 5 and Figure 7, and the floor of
//! all durable operations.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::Result;
use remanent_pmem::order::Method;
use remanent_pmem::{LINE_LEN, Medium, PAGE_LEN};

use super::bench::Bench;
use crate::measure::{Progress, Samples, sample_ns, turns};
use crate::memory::area::{Area, Order};
use crate::memory::floor::{FLOOR_LEN, FenceCost, PERSIST, chase_ns};
use crate::report::{Ground, Report, Shape, number};
use crate::setup::Setup;

pub(super) const BENCH: Bench = Bench::new(
    "primitives",
    "Ordering methods, fences, bandwidth and latency of memory (nvramdisk, Tables 4 and 5, Figure 7)",
    run,
);

/// How long and how often everything is measured.
struct Effort {
    rounds: usize,
    /// Time of one sample.
    sample: Duration,
    /// Largest working set of the pointer chase.
    chase_len_max: usize,
}

const QUICK: Effort =
    Effort { rounds: 3, sample: Duration::from_millis(10), chase_len_max: 1 << 26 };
const FULL: Effort =
    Effort { rounds: 7, sample: Duration::from_millis(40), chase_len_max: 1 << 30 };

/// Measures one group of rows.
type Part = fn(&Area, &Effort, &mut Report);

/// Measures the primitives.
///
/// # Errors
///
/// When there is not enough memory in the directory for pools.
fn run(setup: &Setup) -> Result<Report> {
    let effort = if setup.quick { QUICK } else { FULL };
    let mut report = Report::new("primitives")?;
    let area = Area::new(&setup.dir, FLOOR_LEN)?;
    let parts: [(&str, Part); 6] = [
        ("fence", measure_fence),
        ("instructions", measure_instructions),
        ("ordering methods", measure_methods),
        ("lines under one fence", measure_lines),
        ("bandwidth", measure_bandwidth),
        ("latency", measure_chase),
    ];
    let progress = Progress::new("primitives", parts.len());
    for (name, measure) in parts {
        progress.step(name);
        measure(&area, &effort, &mut report);
    }
    drop(progress);
    add_charts(&mut report);
    Ok(report)
}

fn add_charts(report: &mut Report) {
    let random = "8 B random ";
    report.chart(
        "figure7a",
        "Access latency by ordering method, 8 bytes",
        "ns",
        random,
        Shape::BarsLog,
    );
    let random = "4 KiB random ";
    report.chart(
        "figure7b",
        "Access latency by ordering method, 4 KiB",
        "ns",
        random,
        Shape::BarsLog,
    );
    report.chart("lines", "Lines under one fence", "ns/fence", "", Shape::LinesLogX);
    report.chart("chase", "Dependent load by working set (KiB)", "ns/load", "", Shape::LinesLogX);
}

fn measure_fence(area: &Area, effort: &Effort, report: &mut Report) {
    let cost = FenceCost::measure(area, effort.rounds);
    for order in Order::ALL {
        report.row(PERSIST, order.name(), &area.ground(), "ns", cost.samples(order));
    }
}

const STORE: &str = "store 8 B";
const STREAM: &str = "non-temporal store 4 KiB, no fence";
const FLUSH: &str = "store + flush, no fence";
const FENCE: &str = "fence alone";

/// Table 4: each instruction in its cheapest and in its most expensive case.
fn measure_instructions(area: &Area, effort: &Effort, report: &mut Report) {
    let medium = area.medium();
    let zeros = [0; PAGE_LEN as usize];
    let mut first_turn = 0;
    for (case, order) in [("best", Order::Sequential), ("worst", Order::Random)] {
        let x = format!("table 4 {case}");
        let line = |turn| area.visit(order, LINE_LEN, turn);
        let mut add = |series, ns: &Samples| report.row(series, &x, &area.ground(), "ns", ns);
        add(STORE, &rounds_ns(effort, &mut first_turn, |turn| medium.store(line(turn), turn)));
        let stream = |turn| medium.write_streaming(area.visit(order, PAGE_LEN, turn), &zeros);
        add(STREAM, &rounds_ns(effort, &mut first_turn, stream));
        medium.fence();
        let flush = |turn| {
            medium.store(line(turn), turn);
            medium.flush(line(turn), 8);
        };
        add(FLUSH, &rounds_ns(effort, &mut first_turn, flush));
        medium.fence();
        add(FENCE, &rounds_ns(effort, &mut first_turn, |_| medium.fence()));
        let persist = |turn| {
            medium.store(line(turn), turn);
            medium.persist(line(turn), 8);
        };
        add(PERSIST, &rounds_ns(effort, &mut first_turn, persist));
    }
    print_table_4(report);
}

fn rounds_ns(effort: &Effort, first_turn: &mut u64, mut work: impl FnMut(u64)) -> Samples {
    (0..effort.rounds).map(|_| sample_ns(effort.sample, first_turn, &mut work)).collect()
}

/// The cost of a step is the difference to the steps before it. The best case of a fence is one
/// without anything to wait for.
fn print_table_4(report: &mut Report) {
    let cost = |series, case: &str| report.median(series, &format!("table 4 {case}"));
    let line =
        |name: &str, best: f64, worst: f64| vec![name.to_owned(), number(best), number(worst)];
    let words = PAGE_LEN as f64 / 8.0;
    let added = |step, before, case| cost(step, case) - cost(before, case);
    let lines = vec![
        ["instruction", "best", "worst"].map(str::to_owned).to_vec(),
        line("store", cost(STORE, "best"), cost(STORE, "worst")),
        line(
            "non-temporal store, of 512",
            cost(STREAM, "best") / words,
            cost(STREAM, "worst") / words,
        ),
        line("flush", added(FLUSH, STORE, "best"), added(FLUSH, STORE, "worst")),
        line("fence", cost(FENCE, "best"), added(PERSIST, FLUSH, "worst")),
    ];
    report.table("Table 4: ns per instruction (8 bytes)", lines);
}

/// Table 5: words and blocks by the two methods that a process can execute as the paper does.
fn print_table_5(report: &mut Report) {
    let columns = [("4 KiB", "MCF"), ("4 KiB", "MNT"), ("8 B", "MCF"), ("8 B", "MNT")];
    let mut lines = vec![
        [vec![String::new()], columns.map(|(size, method)| format!("{size} {method}")).to_vec()]
            .concat(),
    ];
    for (name, counts) in [
        ("store", [512, 0, 1, 0]),
        ("non-temporal store", [0, 512, 0, 1]),
        ("flush", [64, 0, 1, 0]),
        ("fence", [1, 1, 1, 1]),
    ] {
        lines.push(
            [vec![name.to_owned()], counts.map(|count: u32| count.to_string()).to_vec()].concat(),
        );
    }
    for (name, order) in [("ns, best", Order::Sequential), ("ns, worst", Order::Random)] {
        let cells = columns.map(|(size, method)| {
            number(report.median(method, &format!("{size} {} write", order.name())))
        });
        lines.push([vec![name.to_owned()], cells.to_vec()].concat());
    }
    report.table("Table 5: overhead of MCF and MNT for block and word writes", lines);
}

/// The access to memory in Figure 7.
#[derive(Clone, Copy)]
enum Access {
    Read,
    Write,
    /// Reads and writes by turns.
    Mix,
}

/// Table 5 and Figure 7: every ordering method on words and blocks. Sequential places are Table 5's
/// best case; random ones are its worst case, and the figure's.
fn measure_methods(area: &Area, effort: &Effort, report: &mut Report) {
    let methods = Method::available();
    let mut block = [1; PAGE_LEN as usize];
    let mut first_turn = 0;
    for (size_name, size) in [("8 B", 8), ("4 KiB", PAGE_LEN)] {
        for order in [Order::Sequential, Order::Random] {
            for (access_name, access) in
                [("read", Access::Read), ("write", Access::Write), ("mix", Access::Mix)]
            {
                let mut samples = vec![Samples::default(); methods.len()];
                let x = format!("{size_name} {} {access_name}", order.name());
                for round in 0..effort.rounds {
                    for index in turns(methods.len(), round) {
                        let bytes = &mut block[..size as usize];
                        let ns = sample_ns(effort.sample, &mut first_turn, |turn| {
                            // One word in each line, because the next word of a line just flushed
                            // would measure that flush.
                            let offset = area.visit(order, size.max(LINE_LEN), turn);
                            perform(methods[index], access, area, offset, bytes, turn);
                        });
                        samples[index].push(ns);
                    }
                }
                for (method, samples) in methods.iter().zip(&samples) {
                    report.row(method.name(), &x, &area.ground(), "ns", samples);
                }
            }
        }
    }
    print_table_5(report);
}

#[inline(always)]
fn perform(method: Method, access: Access, area: &Area, offset: u64, bytes: &mut [u8], turn: u64) {
    let read = match access {
        Access::Read => true,
        Access::Write => false,
        Access::Mix => turn.is_multiple_of(2),
    };
    if read {
        method.read(area.medium(), offset, bytes);
        black_box(bytes);
    } else {
        method.write(area.medium(), offset, bytes);
    }
}

/// One fence for 1 to 16 lines.
fn measure_lines(area: &Area, effort: &Effort, report: &mut Report) {
    let medium = area.medium();
    let mut first_turn = 0;
    for order in [Order::Sequential, Order::Random] {
        for count in [1, 2, 4, 8, 16] {
            let samples: Samples = (0..effort.rounds)
                .map(|_| {
                    sample_ns(effort.sample, &mut first_turn, |turn| {
                        for line in 0..count {
                            let offset = area.visit(order, LINE_LEN, turn * count + line);
                            medium.store(offset, turn);
                            medium.flush(offset, 8);
                        }
                        medium.fence();
                    })
                })
                .collect();
            report.row(order.name(), &count.to_string(), &area.ground(), "ns/fence", &samples);
        }
    }
}

/// One thread's bandwidth: reading, copying, and writing past the cache.
fn measure_bandwidth(area: &Area, effort: &Effort, report: &mut Report) {
    let len = FLOOR_LEN as usize / 4;
    let words = vec![1u64; len / 8];
    let mut copy = words.clone();
    let chunk = vec![1u8; 1 << 16];
    let gigabytes_per_second = |work: &mut dyn FnMut()| -> Samples {
        (0..effort.rounds)
            .map(|_| {
                let start = Instant::now();
                work();
                len as f64 / start.elapsed().as_secs_f64() / 1e9
            })
            .collect()
    };
    let read = gigabytes_per_second(&mut || {
        black_box(black_box(&words).iter().fold(0, |sum: u64, word| sum.wrapping_add(*word)));
    });
    let copied = gigabytes_per_second(&mut || {
        copy.copy_from_slice(&words);
        black_box(&mut copy);
    });
    let streamed = gigabytes_per_second(&mut || {
        for index in 0..(len / chunk.len()) as u64 {
            area.medium().write_streaming(area.place(chunk.len() as u64, index), &chunk);
        }
        area.medium().fence();
    });
    report.row("read", "bandwidth", &Ground::volatile(), "GB/s", &read);
    report.row("memcpy", "bandwidth", &Ground::volatile(), "GB/s", &copied);
    report.row("non-temporal write", "bandwidth", &area.ground(), "GB/s", &streamed);
}

/// Latency of dependent loads, by working set; x is in KiB.
fn measure_chase(_: &Area, effort: &Effort, report: &mut Report) {
    let mut len = 16 << 10;
    while len <= effort.chase_len_max {
        let samples = chase_ns(len, effort.rounds);
        report.row(
            "pointer chase",
            &(len >> 10).to_string(),
            &Ground::volatile(),
            "ns/load",
            &samples,
        );
        len *= 4;
    }
}
