//! Cache-line transactions: the paper's bounded buffer in its three scenarios (Figures 6 to 8),
//! compared with libpmemobj and, on request, with the paper's own aspect; and the cost of a commit
//! and of a read beyond what the machine needs.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use remanent_pmem::{Durability, Emulation, LINE_LEN, Medium, PAGE_LEN, Pool};
use remanent_structures::line_tx::LINE_DATA_MAX;
use remanent_structures::papers::{BoundedBuffer, BoundedBufferHandle};
use remanent_structures::{Transactional, Tx};

use super::bench::Bench;
use crate::cleanup::Scratch;
use crate::measure::{Progress, Samples, mean_ns, turns};
use crate::memory::area::{Area, Order};
use crate::memory::floor::PERSIST;
use crate::peers::aspectc;
use crate::peers::buffer::{self, Buffer, CAPACITY, Scenario, run_right};
#[cfg(has_pmemobj)]
use crate::peers::pmemobj_buffer::{self, Form};
use crate::report::{Ground, Report, Shape, number};
use crate::setup::{Extra, Setup};

pub(super) const BENCH: Bench = Bench {
    extras: &[Extra::WithAspectc],
    ..Bench::new(
        "line-tx",
        "Cache-line transactions: the paper's bounded buffer beside libpmemobj's (Figures 6 to 8)",
        run,
    )
};

const PLAIN: &str = "plain buffer";
const OURS: &str = "remanent nvram";
const OURS_PCM: &str = "remanent pcm";
const PMEMOBJ: &str = "libpmemobj object";
const FIELDS: &str = "libpmemobj fields";
const ASPECT: &str = "AspectC++ aspect";

/// How long and how often everything is measured.
struct Effort {
    rounds: usize,
    /// Time of one sample.
    sample: Duration,
}

const QUICK: Effort = Effort { rounds: 25, sample: Duration::from_millis(10) };
/// As many rounds as the paper's repetitions.
const FULL: Effort = Effort { rounds: 100, sample: Duration::from_millis(20) };

/// Measures the scenarios, the commit and the read.
///
/// # Errors
///
/// When a buffer cannot be made, or answers wrongly.
fn run(setup: &Setup) -> Result<Report> {
    let effort = if setup.quick { QUICK } else { FULL };
    let mut report = Report::new("line-tx")?;
    let scratch = Scratch::new(&setup.dir)?;
    let mut contenders = contenders(setup, &scratch)?;
    let mut line = Line::new(setup, &scratch)?;
    let mut costs = LineCosts::default();
    let progress = Progress::new("line-tx", effort.rounds + 1);
    progress.step("finding how often a scenario is to run");
    for contender in &mut contenders {
        contender.calibrate(effort.sample)?;
    }
    for round in 0..effort.rounds {
        progress.step("running the scenarios");
        for scenario in Scenario::ALL {
            for turn in turns(contenders.len(), round) {
                contenders[turn].sample(scenario)?;
            }
        }
        line.sample(&mut costs, round)?;
    }
    drop(progress);
    add_rows(&contenders, &line, &costs, &mut report);
    add_table(&contenders, &mut report);
    add_claims(&contenders, &costs, &mut report);
    add_charts(&mut report);
    Ok(report)
}

/// A buffer and what it took.
struct Contender {
    name: &'static str,
    buffer: Box<dyn Buffer>,
    ground: Ground,
    /// Number of runs of each scenario in a sample.
    repetitions: [u64; Scenario::ALL.len()],
    /// Nanoseconds per scenario.
    ns: [Samples; Scenario::ALL.len()],
}

impl Contender {
    fn new(name: &'static str, (buffer, ground): (Box<dyn Buffer>, Ground)) -> Self {
        Contender { name, buffer, ground, repetitions: [1; 3], ns: Default::default() }
    }

    /// Finds how often each scenario has to run to take this long; this also warms everything up.
    fn calibrate(&mut self, sample: Duration) -> Result<()> {
        for scenario in Scenario::ALL {
            let mut repetitions = 1;
            // Two in a row, because one long run may be due to the machine's other work.
            while self.time(scenario, repetitions)? < sample / 2
                || self.time(scenario, repetitions)? < sample / 2
            {
                repetitions *= 2;
            }
            self.repetitions[index(scenario)] = repetitions;
        }
        Ok(())
    }

    fn sample(&mut self, scenario: Scenario) -> Result<()> {
        let repetitions = self.repetitions[index(scenario)];
        let time = self.time(scenario, repetitions)?;
        self.ns[index(scenario)].push(time.as_secs_f64() * 1e9 / repetitions as f64);
        Ok(())
    }

    fn time(&mut self, scenario: Scenario, repetitions: u64) -> Result<Duration> {
        let start = Instant::now();
        run_right(&mut *self.buffer, scenario, repetitions)
            .with_context(|| self.name.to_owned())?;
        Ok(start.elapsed())
    }
}

/// Place of a scenario in arrays.
fn index(scenario: Scenario) -> usize {
    scenario as usize - Scenario::Add as usize
}

/// Label of a scenario's rows: the paper's number, and what is done.
fn label(scenario: Scenario) -> &'static str {
    match scenario {
        Scenario::Add => "scenario 1: 29 adds",
        Scenario::AddTake => "scenario 2: 29 adds, 29 gets",
        Scenario::FillDrain => "scenario 3: fill, drain",
    }
}

/// Transactions with a change, each of which needs a fence.
fn fence_budget(scenario: Scenario) -> usize {
    match scenario {
        // One more transaction empties the buffer.
        Scenario::Add => 1 + CAPACITY,
        Scenario::AddTake => 2 * CAPACITY,
        Scenario::FillDrain => 2,
    }
}

fn contenders(setup: &Setup, scratch: &Scratch) -> Result<Vec<Contender>> {
    let directory = scratch.path();
    let mut contenders = vec![
        Contender::new(PLAIN, (buffer::plain(), Ground::volatile())),
        Contender::new(OURS, buffer::nvram(directory)?),
        Contender::new(OURS_PCM, buffer::pcm(directory)?),
    ];
    #[cfg(has_pmemobj)]
    contenders.extend([
        Contender::new(PMEMOBJ, pmemobj_buffer::create(directory, Form::Object)?),
        Contender::new(FIELDS, pmemobj_buffer::create(directory, Form::Fields)?),
    ]);
    if !cfg!(has_pmemobj) {
        eprintln!(
            "PMDK was not found when this was built (libpmemobj-dev): no rows and claims beside it"
        );
    }
    if setup.with_aspectc
        && let Some(library) = aspectc::load()?
    {
        contenders.push(Contender::new(ASPECT, library.create(directory)?));
    }
    Ok(contenders)
}

/// One line of pool memory, changed with and without a transaction.
struct Line {
    area: Area,
    bytes: Tx<[u8; LINE_DATA_MAX]>,
    buffer: BoundedBufferHandle,
    plain: BoundedBuffer,
}

/// Cost of the steps of a transaction, in nanoseconds.
#[derive(Default)]
struct LineCosts {
    persist: Samples,
    commit: Samples,
    /// `len()` of the plain struct.
    read_plain: Samples,
    /// `len()` through the handle.
    read_method: Samples,
    /// `len()` of the value that `get()` of the handle returned.
    read_copy: Samples,
}

/// Commits in a sample: some milliseconds.
const COMMITS: u64 = 20_000;
/// Reads in a sample: some milliseconds.
const READS: u64 = 1_000_000;
/// Bytes in the buffer that is read.
const READ_LEN: usize = 5;

impl Line {
    fn new(setup: &Setup, scratch: &Scratch) -> Result<Self> {
        let options = Pool::options().size_max(buffer::SIZE_MAX).durability(Durability::Process);
        let options = options.emulation(Emulation::Nvram);
        let pool = options.create(scratch.path().join("line.pool"))?;
        let mut plain = BoundedBuffer::new();
        for byte in 0..READ_LEN {
            plain.add(byte as u8);
        }
        Ok(Line {
            area: Area::new(&setup.dir, PAGE_LEN)?,
            bytes: Tx::create(&pool, "bytes", [0; LINE_DATA_MAX])?,
            buffer: plain.create(&pool, "buffer")?,
            plain,
        })
    }

    fn sample(&mut self, costs: &mut LineCosts, round: usize) -> Result<()> {
        for turn in turns(2, round) {
            match turn {
                0 => costs.persist.push(self.persist_ns()),
                _ => costs.commit.push(self.commit_ns()?),
            }
        }
        for turn in turns(3, round) {
            match turn {
                0 => costs.read_plain.push(self.read_plain_ns()),
                1 => costs.read_method.push(self.read_method_ns()?),
                _ => costs.read_copy.push(self.read_copy_ns()?),
            }
        }
        Ok(())
    }

    /// The floor: store, flush and fence of the same line each time.
    fn persist_ns(&self) -> f64 {
        let medium = self.area.medium();
        let offset = self.area.visit(Order::Same, LINE_LEN, 0);
        mean_ns(COMMITS, |turn| {
            medium.store(offset, turn);
            medium.persist(offset, 8);
        })
    }

    /// A transaction that changes one byte.
    fn commit_ns(&mut self) -> Result<f64> {
        let mut committed = 0;
        let ns = mean_ns(COMMITS, |turn| {
            let change = |bytes: &mut [u8; LINE_DATA_MAX]| bytes[0] = turn as u8;
            committed += u64::from(self.bytes.transact(change).is_ok());
        });
        ensure!(committed == COMMITS, "{} of {COMMITS} commits failed", COMMITS - committed);
        ensure!(self.bytes.get()?[0] == (COMMITS - 1) as u8, "the last commit cannot be read");
        Ok(ns)
    }

    fn read_plain_ns(&self) -> f64 {
        mean_ns(READS, |_| {
            black_box(black_box(&self.plain).len());
        })
    }

    fn read_method_ns(&self) -> Result<f64> {
        ensure!(self.buffer.len()? == READ_LEN, "the buffer's length cannot be read");
        Ok(mean_ns(READS, |_| {
            if let Ok(len) = black_box(&self.buffer).len() {
                black_box(len);
            }
        }))
    }

    fn read_copy_ns(&self) -> Result<f64> {
        ensure!(self.buffer.get()?.len() == READ_LEN, "the buffer cannot be read");
        Ok(mean_ns(READS, |_| {
            if let Ok(copy) = black_box(&self.buffer).get() {
                black_box(copy.len());
            }
        }))
    }
}

fn add_rows(contenders: &[Contender], line: &Line, costs: &LineCosts, report: &mut Report) {
    for contender in contenders {
        for scenario in Scenario::ALL {
            let ns = &contender.ns[index(scenario)];
            report.row(contender.name, label(scenario), &contender.ground, "ns/scenario", ns);
        }
    }
    let ground = &line.area.ground();
    report.row(PERSIST, Order::Same.name(), ground, "ns", &costs.persist);
    report.row(OURS, "commit of one byte", ground, "ns", &costs.commit);
    report.row(PLAIN, "read: len()", &Ground::volatile(), "ns", &costs.read_plain);
    report.row(OURS, "read: len()", ground, "ns", &costs.read_method);
    report.row(OURS, "read: get(), then len()", ground, "ns", &costs.read_copy);
}

/// The three figures, and each contender's time over ours.
fn add_table(contenders: &[Contender], report: &mut Report) {
    let mut lines = vec![vec![String::new()]];
    for scenario in Scenario::ALL {
        let name = label(scenario).split_once(": ").map_or("", |(_, what)| what);
        lines[0].extend([name.to_owned(), "over ours".to_owned()]);
    }
    for contender in contenders {
        let mut cells = vec![contender.name.to_owned()];
        for scenario in Scenario::ALL {
            let ns = report.median(contender.name, label(scenario));
            let over = ns / report.median(OURS, label(scenario));
            cells.extend([number(ns), number(over)]);
        }
        lines.push(cells);
    }
    report.table("Figures 6 to 8: ns per scenario", lines);
}

fn add_claims(contenders: &[Contender], costs: &LineCosts, report: &mut Report) {
    let find = |name| contenders.iter().find(|contender| contender.name == name);
    let persist_ns = costs.persist.median();
    for (id, rival, scenario) in [
        ("s1_vs_pmemobj", PMEMOBJ, Scenario::Add),
        ("s2_vs_pmemobj", PMEMOBJ, Scenario::AddTake),
        ("s3_vs_pmemobj", PMEMOBJ, Scenario::FillDrain),
        ("s3_vs_pmemobj_fields", FIELDS, Scenario::FillDrain),
        ("s1_vs_aspectc", ASPECT, Scenario::Add),
        ("s2_vs_aspectc", ASPECT, Scenario::AddTake),
        ("s3_vs_aspectc", ASPECT, Scenario::FillDrain),
    ] {
        let (Some(ours), Some(theirs)) = (find(OURS), find(rival)) else { continue };
        let (ours_ns, theirs_ns) = (&ours.ns[index(scenario)], &theirs.ns[index(scenario)]);
        let floor_ns = fence_budget(scenario) as f64 * persist_ns;
        let against = format!(
            "ns per {}: {rival} {:.0}, {OURS} {:.0}, floor {floor_ns:.0}",
            label(scenario),
            theirs_ns.median(),
            ours_ns.median(),
        );
        let best = theirs_ns.median() / floor_ns;
        let id = format!("line_tx.{id}");
        report.claim(&id, &theirs_ns.over(ours_ns), "x", against, Some(best));
    }
    let against = format!(
        "{PERSIST} of one same line {persist_ns:.0} ns, commit of one byte {:.0} ns",
        costs.commit.median()
    );
    let over = costs.commit.over(&costs.persist);
    report.claim("line_tx.commit_vs_floor", &over, "x", against, Some(1.0));
    let against = format!(
        "len() of the plain struct {:.2} ns, through the handle {:.2} ns, of the copy from get() {:.2} ns",
        costs.read_plain.median(),
        costs.read_method.median(),
        costs.read_copy.median()
    );
    let extra = costs.read_method.minus(&costs.read_plain);
    report.claim("line_tx.read_extra_ns", &extra, "ns", against, Some(0.0));
}

fn add_charts(report: &mut Report) {
    for (file, scenario, title) in [
        ("figure6", Scenario::Add, "Add 29 bytes in 29 transactions"),
        ("figure7", Scenario::AddTake, "Add 29 bytes, then get 29 bytes, in 58 transactions"),
        ("figure8", Scenario::FillDrain, "Fill in one transaction, drain in another"),
    ] {
        let x = label(scenario);
        let prefix = x.split_once(": ").map_or(x, |(prefix, _)| prefix);
        report.chart(file, title, "ns/scenario", &format!("{prefix}:"), Shape::Bars);
    }
}
