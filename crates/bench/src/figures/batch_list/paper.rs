//! The paper's evaluation (section 5): four scenarios on a file and on emulated persistent memory,
//! execution times with mean, standard deviation and one-way ANOVA, and its Figures 4 to 6.
//!
//! The paper says neither how many elements its lists have, nor what a modification is. Here lists
//! begin with 1,000 elements of 100 bytes. Modifications are inserts, updates and removals in equal
//! parts, of existing keys. Every run ends with a sync, so that all solutions have done the same
//! work. Walking a longer list takes longer, whatever is flushed; 10,000 elements show the effect
//! on the savings.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use remanent_pmem::{Durability, Emulation, Latency, Medium, Pool};
use remanent_structures::batch_list::{BatchList, ChangeList, LogList};
use remanent_structures::papers::{AppendList, FlushAlwaysList, TableList};
use remanent_structures::{BatchMap, BatchOptions};

use crate::cleanup::Scratch;
use crate::measure::{Anova, Progress, Samples, turns};
use crate::report::{Ground, Report, Shape, number};
use crate::setup::Setup;
use crate::workloads::keys::mix;

/// Number of operations and of repetitions.
struct Effort {
    rounds: usize,
    /// Operations on a file, where every fence waits for the disk, and on emulated memory.
    file_ops: usize,
    memory_ops: usize,
    /// Inserts of the last scenario on emulated memory.
    memory_inserts: usize,
}

const QUICK: Effort =
    Effort { rounds: 3, file_ops: 100, memory_ops: 2_000, memory_inserts: 20_000 };
const FULL: Effort =
    Effort { rounds: 10, file_ops: 1_000, memory_ops: 4_000, memory_inserts: 200_000 };

/// Elements at the start of a mixed scenario.
const ELEMENTS: u64 = 1_000;
/// Elements of lists whose walk takes longer than their flushes.
const LONGER: u64 = 10_000;
/// Elements of the lists that compare the index with walking, and operations on them.
const MANY: u64 = 100_000;
const MANY_OPS: usize = 200;

const VALUE: [u8; 100] = [0x5a; 100];
const UNIT: &str = "s";

/// The medium of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// An ordinary file, written back by msync: the paper's Optane SSD.
    File,
    Pcm,
    Stt,
}

impl Place {
    const ALL: [Place; 3] = [Place::File, Place::Pcm, Place::Stt];

    fn name(self) -> &'static str {
        match self {
            Place::File => "file",
            Place::Pcm => "PCM",
            Place::Stt => "STT-MRAM",
        }
    }

    fn id(self) -> &'static str {
        match self {
            Place::File => "file",
            Place::Pcm => "pcm",
            Place::Stt => "stt",
        }
    }

    fn latency(self) -> Option<Latency> {
        match self {
            Place::File => None,
            Place::Pcm => Some(Latency::PCM),
            Place::Stt => Some(Latency::STT_MRAM),
        }
    }
}

/// The paper's implementations, and the indexed map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Solution {
    FlushAlways,
    /// The paper's BOPL: inserts only.
    Append,
    Log,
    Table,
    Indexed,
}

impl Solution {
    fn name(self) -> &'static str {
        match self {
            Solution::FlushAlways => "flush always",
            Solution::Append => "BOPL (insert-only)",
            Solution::Log => "BOPL-Log",
            Solution::Table => "BOPL-Hashmap",
            Solution::Indexed => "indexed",
        }
    }

    fn promise(self) -> &'static str {
        match self {
            Solution::FlushAlways => "each operation is durable when it returns",
            _ => "a prefix of the history, at most 8 MiB or 20 ms behind; the run ends with a sync",
        }
    }
}

/// The mix of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scenario {
    /// So many percent modifications; the others are searches.
    Mixed(u64),
    Inserts,
}

impl Scenario {
    const ALL: [Scenario; 4] =
        [Scenario::Mixed(10), Scenario::Mixed(50), Scenario::Mixed(90), Scenario::Inserts];

    fn name(self) -> String {
        match self {
            Scenario::Mixed(share) => format!("{share}/{}", 100 - share),
            Scenario::Inserts => "inserts".to_owned(),
        }
    }

    fn solutions(self) -> &'static [Solution] {
        use Solution::{Append, FlushAlways, Indexed, Log, Table};
        match self {
            Scenario::Mixed(_) => &[FlushAlways, Log, Table, Indexed],
            Scenario::Inserts => &[FlushAlways, Append, Log, Table, Indexed],
        }
    }
}

/// One operation.
#[derive(Clone, Copy, Debug)]
enum Step {
    Insert(u64),
    Update(u64),
    Remove(u64),
    Search(u64),
}

/// Operations on existing keys, the same for every solution.
fn steps(scenario: Scenario, elements: u64, count: usize) -> Vec<Step> {
    let mut present: Vec<u64> = (0..elements).map(mix).collect();
    let mut next = elements;
    let mut insert = |present: &mut Vec<u64>| {
        let key = mix(next);
        next += 1;
        present.push(key);
        Step::Insert(key)
    };
    (0..count as u64)
        .map(|number| {
            let Scenario::Mixed(share) = scenario else { return insert(&mut present) };
            let drawn = mix(number ^ 0x0b0e);
            let at = (mix(drawn) % present.len() as u64) as usize;
            match (drawn % 100 < share, drawn / 100 % 3) {
                (false, _) => Step::Search(present[at]),
                (true, 0) => insert(&mut present),
                (true, 1) => Step::Update(present[at]),
                (true, _) => Step::Remove(present.swap_remove(at)),
            }
        })
        .collect()
}

/// Executes all steps and a sync.
fn run_steps<L: ChangeList>(list: &mut L, steps: &[Step]) -> Result<Duration> {
    let start = Instant::now();
    for &step in steps {
        let done = match step {
            Step::Insert(key) => list.insert(key, &VALUE)?,
            Step::Update(key) => list.update(key, &VALUE)?,
            Step::Remove(key) => list.remove(key)?,
            Step::Search(key) => list.get_with(key, <[u8]>::len)? == Some(VALUE.len()),
        };
        ensure!(done, "{step:?} found no such key");
    }
    list.sync()?;
    Ok(start.elapsed())
}

fn run_inserts<L: BatchList>(list: &mut L, steps: &[Step]) -> Result<Duration> {
    let start = Instant::now();
    for &step in steps {
        let Step::Insert(key) = step else { continue };
        ensure!(list.insert(key, &VALUE)?, "a new key is there already");
    }
    list.sync()?;
    Ok(start.elapsed())
}

const ROOT: &str = "list";

/// Fills a new list with elements.
fn fill<M: Medium>(pool: &Pool<M>, solution: Solution, elements: u64) -> Result<()> {
    fn insert(mut list: impl BatchList, elements: u64) -> Result<()> {
        for number in 0..elements {
            list.insert(mix(number), &VALUE)?;
        }
        Ok(list.close()?)
    }
    let options = BatchOptions::default();
    match solution {
        Solution::FlushAlways => insert(FlushAlwaysList::create(pool, ROOT, options)?, elements),
        Solution::Append => insert(AppendList::create(pool, ROOT, options)?, elements),
        Solution::Log => insert(LogList::create(pool, ROOT, options)?, elements),
        Solution::Table => insert(TableList::create(pool, ROOT, options)?, elements),
        Solution::Indexed => insert(BatchMap::create(pool, ROOT, options)?, elements),
    }
}

/// Opens the filled list, and executes the steps.
fn time<M: Medium>(pool: &Pool<M>, solution: Solution, steps: &[Step]) -> Result<Duration> {
    let options = BatchOptions::default();
    match solution {
        Solution::FlushAlways => run_steps(&mut FlushAlwaysList::open(pool, ROOT, options)?, steps),
        Solution::Append => run_inserts(&mut AppendList::open(pool, ROOT, options)?, steps),
        Solution::Log => run_steps(&mut LogList::open(pool, ROOT, options)?, steps),
        Solution::Table => run_steps(&mut TableList::open(pool, ROOT, options)?, steps),
        Solution::Indexed => {
            run_steps(&mut BatchMap::<u64, [u8], M>::open(pool, ROOT, options)?, steps)
        }
    }
}

/// One run, in a pool of its own.
fn run_once(
    directory: &Path,
    place: Place,
    solution: Solution,
    elements: u64,
    steps: &[Step],
) -> Result<f64> {
    let scratch = Scratch::new(directory)?;
    let path = scratch.path().join("list.pool");
    let options = Pool::options().size_max(8 << 30);
    let time = match place.latency() {
        None => {
            // Filled without a wait for each element, and durable before the clock starts.
            fill(&options.create(&path)?, solution, elements)?;
            std::fs::File::open(&path)?.sync_all()?;
            let pool = options.durability(Durability::Power).open(&path)?;
            time(&pool, solution, steps)?
        }
        Some(latency) => {
            let pool = options.emulation(Emulation::Latency(latency)).create_emulated(&path)?;
            fill(&pool, solution, elements)?;
            time(&pool, solution, steps)?
        }
    };
    Ok(time.as_secs_f64())
}

/// Runs of one solution in one scenario on one medium.
struct Cell {
    place: Place,
    scenario: Scenario,
    solution: Solution,
    elements: u64,
    seconds: Samples,
}

/// Measures the paper's scenarios, and adds rows, tables, claims and charts.
///
/// # Errors
///
/// When a list cannot be made, or answers wrongly.
pub(super) fn run(setup: &Setup, report: &mut Report) -> Result<()> {
    let effort = if setup.quick { QUICK } else { FULL };
    let mut cells = cells();
    let progress = Progress::new("batch-list", effort.rounds * cells.len());
    for round in 0..effort.rounds {
        for turn in turns(cells.len(), round) {
            let Cell { place, scenario, solution, elements, ref mut seconds } = cells[turn];
            progress.step(format!("{}, {}, {}", place.name(), scenario.name(), solution.name()));
            let count = match (place, scenario) {
                _ if elements == MANY => MANY_OPS,
                (Place::File, _) => effort.file_ops,
                (_, Scenario::Inserts) => effort.memory_inserts,
                _ => effort.memory_ops,
            };
            let steps = steps(scenario, elements, count);
            let directory = if place == Place::File { &setup.disk } else { &setup.dir };
            let time = run_once(directory, place, solution, elements, &steps);
            seconds.push(time.with_context(|| solution.name().to_owned())?);
        }
    }
    drop(progress);
    add_rows(&cells, setup, report)?;
    add_tables(&cells, report);
    add_claims(&cells, report);
    add_charts(report);
    Ok(())
}

/// All measurements; those to be compared run one after the other.
fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    let mut push = |place, scenario, solution, elements| {
        cells.push(Cell { place, scenario, solution, elements, seconds: Samples::new() });
    };
    for place in Place::ALL {
        for scenario in Scenario::ALL {
            let elements = if scenario == Scenario::Inserts { 0 } else { ELEMENTS };
            for &solution in scenario.solutions() {
                push(place, scenario, solution, elements);
            }
        }
        for &solution in Scenario::Mixed(90).solutions() {
            push(place, Scenario::Mixed(90), solution, LONGER);
        }
        for solution in [Solution::Log, Solution::Indexed] {
            push(place, Scenario::Mixed(10), solution, MANY);
        }
    }
    cells
}

impl Cell {
    fn x(&self) -> String {
        let elements = match self.elements {
            LONGER => ", 10,000 elements",
            MANY => ", 100,000 elements",
            _ => "",
        };
        format!("{}, {}{elements}", self.place.name(), self.scenario.name())
    }
}

fn add_rows(cells: &[Cell], setup: &Setup, report: &mut Report) -> Result<()> {
    let backing = crate::report::backing_of(&setup.disk)?;
    for cell in cells {
        let batched = if cell.solution == Solution::FlushAlways { "" } else { ", batched" };
        let ground = match cell.place.latency() {
            None => {
                Ground::new(backing, &format!("power{batched}"), "none", cell.solution.promise())
            }
            Some(latency) => {
                let emulation = format!("{}: {latency}", cell.place.name());
                let class = format!("process{batched}");
                Ground::new("memory", &class, &emulation, cell.solution.promise())
            }
        };
        report.row(cell.solution.name(), &cell.x(), &ground, UNIT, &cell.seconds);
    }
    Ok(())
}

/// The execution times as the paper gives them.
fn add_tables(cells: &[Cell], report: &mut Report) {
    let head = ["medium, scenario", "solution", "mean s", "σ s", "one-way ANOVA"];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    for group in cells.chunk_by(|a, b| a.x() == b.x()) {
        let samples: Vec<&Samples> = group.iter().map(|cell| &cell.seconds).collect();
        let mut anova = Anova::of(&samples).map(|anova| anova.to_string());
        for cell in group {
            let [mean, sigma] = [cell.seconds.mean(), cell.seconds.sigma()].map(number);
            let anova = anova.take().unwrap_or_default();
            lines.push(vec![cell.x(), cell.solution.name().to_owned(), mean, sigma, anova]);
        }
    }
    report.table("Execution times (the paper's section 5.1)", lines);
}

fn add_claims(cells: &[Cell], report: &mut Report) {
    let find = |place, scenario, solution, many: bool| {
        let is_size = |cell: &&Cell| {
            if many { cell.elements == MANY } else { [0, ELEMENTS].contains(&cell.elements) }
        };
        let mut sized = cells.iter().filter(is_size);
        let cell = sized
            .find(|cell| (cell.place, cell.scenario, cell.solution) == (place, scenario, solution));
        &cell.expect("every combination was measured").seconds
    };
    let mut saving = |id: String, place, scenario, solution: Solution| {
        let always = find(place, scenario, Solution::FlushAlways, false);
        let ours = find(place, scenario, solution, false);
        let percent = ours.over(always).values().map(|ratio| (1.0 - ratio) * 100.0).collect();
        let [ours, always] = [ours.median(), always.median()].map(number);
        let against = format!("{} {ours} s, flush always {always} s", solution.name());
        report.claim(&id, &percent, "%", against, None);
    };
    let mixed = Scenario::Mixed(90);
    saving("batch_list.file.90_10.log_saving".to_owned(), Place::File, mixed, Solution::Log);
    for place in Place::ALL {
        let id = format!("batch_list.{}.insert_saving", place.id());
        saving(id, place, Scenario::Inserts, Solution::Append);
    }
    let ratio = |place, scenario, many| {
        let log = find(place, scenario, Solution::Log, many);
        let indexed = find(place, scenario, Solution::Indexed, many);
        (log.over(indexed), format!("{}, {}", place.name(), scenario.name()))
    };
    let least = |ratios: Vec<(Samples, String)>| {
        ratios.into_iter().min_by(|a, b| a.0.median().total_cmp(&b.0.median()))
    };
    let many = Place::ALL.map(|place| ratio(place, Scenario::Mixed(10), true)).to_vec();
    if let Some((ratio, x)) = least(many) {
        let against = format!("BOPL-Log, 100,000 elements, the least of all media: {x}");
        report.claim("batch_list.indexed_vs_log.10_90", &ratio, "×", against, None);
    }
    let all = Place::ALL
        .iter()
        .flat_map(|&place| Scenario::ALL.map(|scenario| ratio(place, scenario, false)));
    if let Some((ratio, x)) = least(all.collect()) {
        let against = format!("BOPL-Log, the least of all scenarios and media: {x}");
        report.claim("batch_list.indexed_vs_log.least", &ratio, "×", against, None);
    }
}

/// The paper's Figures 4 to 6, and the same of what it leaves out.
fn add_charts(report: &mut Report) {
    for (file, title, prefix) in [
        ("figure4", "Figure 4: 90 % modifications, 10 % searches, file", "file, 90/10"),
        ("figure5", "Figure 5: inserts, file", "file, inserts"),
        ("figure6-pcm", "Figure 6: inserts, PCM", "PCM, inserts"),
        ("figure6-stt", "Figure 6: inserts, STT-MRAM", "STT-MRAM, inserts"),
        ("mixed-file", "Modifications/searches, file", "file,"),
        ("mixed-pcm", "Modifications/searches, PCM", "PCM,"),
        ("mixed-stt", "Modifications/searches, STT-MRAM", "STT-MRAM,"),
    ] {
        let title = format!("{title}: execution time");
        report.chart(file, &title, UNIT, prefix, Shape::BarsOfMeans);
    }
}
