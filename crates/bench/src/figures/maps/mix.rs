//! The paper's Figures 6 and 7: searches and inserts mixed, in several threads.

use anyhow::{Context, Result, ensure};

use super::{Effort, Flush, Variant, count_label, threads_label};
use crate::cleanup::Scratch;
use crate::measure::{Progress, Samples, timed, turns};
use crate::peers::multi::{Kind, MultiMap};
use crate::report::{Ground, Report, Shape};
use crate::setup::Setup;
use crate::workloads::entries::{Entries, Mixed};

/// Threads of Figure 6; the paper has 20 on as many cores.
const THREADS_6: [usize; 3] = [1, 2, 8];
/// Percent of writes of Figure 6.
const WRITES_6: [u64; 11] = [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100];
/// Percent of writes of Figure 7.
const WRITES_7: [u64; 3] = [0, 30, 100];
/// Threads of Figure 7, up to the paper's.
pub(super) const THREADS_7: [usize; 6] = [1, 2, 4, 8, 16, 20];

const UNIT: &str = "Mops/s";

/// So many percent of writes, by so many threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    writes: u64,
    threads: usize,
}

impl Cell {
    /// Those of both figures, each once.
    fn all() -> Vec<Cell> {
        let figure_6 = THREADS_6
            .into_iter()
            .flat_map(|threads| WRITES_6.map(|writes| Cell { writes, threads }));
        let figure_7 = WRITES_7
            .into_iter()
            .flat_map(|writes| THREADS_7.map(|threads| Cell { writes, threads }))
            .filter(|cell| !(THREADS_6.contains(&cell.threads) && WRITES_6.contains(&cell.writes)));
        figure_6.chain(figure_7).collect()
    }
}

/// A variant and its results in each cell.
struct Contender {
    variant: Variant,
    ground: Ground,
    /// Millions of steps a second, all threads together.
    mops: Vec<Samples>,
}

/// Measures all variants, and adds their rows and charts.
///
/// # Errors
///
/// When a map cannot be made, or answers wrongly.
pub(super) fn run(effort: Effort, setup: &Setup, report: &mut Report) -> Result<()> {
    let entries = effort.pick(1_000_000, 100_000, 1_000);
    let steps = effort.pick(200_000, 40_000, 500);
    let rounds = effort.pick(3, 1, 1);
    let cells = Cell::all();
    let new = |variant| Contender {
        variant,
        ground: Ground::volatile(),
        mops: vec![Samples::new(); cells.len()],
    };
    let mut contenders: Vec<Contender> = Variant::all().into_iter().map(new).collect();
    let progress = Progress::new("maps, mixed", rounds * cells.len());
    for round in 0..rounds {
        run_round(entries, steps, &cells, setup, &mut contenders, round, &progress)?;
    }
    drop(progress);
    add_figure_6(&cells, &contenders, entries, report);
    add_figure_7(&cells, &contenders, entries, report);
    add_claims(&cells, &contenders, report);
    Ok(())
}

/// Fills all maps, and runs every mix on each in turn. Entries that a mix inserted are removed
/// before the next mix.
fn run_round(
    entries: usize,
    steps: usize,
    cells: &[Cell],
    setup: &Setup,
    contenders: &mut [Contender],
    round: usize,
    progress: &Progress,
) -> Result<()> {
    let entries = Entries::new(entries);
    let (inserts, (audit, expected)) = (entries.inserts::<u64>(), entries.audit());
    let mut maps = Vec::new();
    for contender in contenders.iter_mut() {
        let variant = contender.variant;
        let scratch = Scratch::new(&setup.dir)?;
        let (map, ground) = variant.kind.create_in::<u64>(scratch.path(), &variant.options())?;
        contender.ground = ground;
        map.run(&inserts)?;
        // The open map keeps the pool, without the name of its file.
        maps.push(map);
    }
    for (index, cell) in cells.iter().enumerate() {
        let mixed = entries.mixed(steps, cell.writes);
        progress.step(format!("{} % writes, {}", cell.writes, threads_label(cell.threads)));
        for turn in turns(maps.len(), round + index) {
            let mops = run_cell(&*maps[turn], &mixed, cell.threads)
                .with_context(|| format!("{}, {cell:?}", contenders[turn].variant.name()))?;
            contenders[turn].mops[index].push(mops);
        }
    }
    for (map, contender) in maps.iter().zip(contenders) {
        let found = map.run(&audit)?;
        let name = contender.variant.name();
        ensure!(found == expected, "{name} has {found:?} in the end, and began with {expected:?}");
    }
    Ok(())
}

fn run_cell(map: &dyn MultiMap<u64>, mixed: &Mixed<u64>, threads: usize) -> Result<f64> {
    let (cost, answers) = timed(&mixed.steps, threads, |steps| map.run(steps))?;
    let found = answers.iter().map(|answer| answer.done).sum();
    ensure!(mixed.allows(found), "searches found {found} entries, which cannot be");
    map.run(&mixed.undo)?;
    Ok(mixed.steps.len() as f64 / 1e6 / cost.wall.as_secs_f64())
}

/// The rows of one chart: each contender's line through these cells.
fn add_rows(
    label: &str,
    line: impl Iterator<Item = (u64, Cell)> + Clone,
    cells: &[Cell],
    contenders: &[Contender],
    report: &mut Report,
) {
    for contender in contenders {
        for (x, cell) in line.clone() {
            let index = cells.iter().position(|measured| *measured == cell);
            let mops = &contender.mops[index.expect("the cells of both figures were measured")];
            let (name, x) = (contender.variant.name(), format!("{label} {x}"));
            report.row(&name, &x, &contender.ground, UNIT, mops);
        }
    }
}

fn add_figure_6(cells: &[Cell], contenders: &[Contender], entries: usize, report: &mut Report) {
    for threads in THREADS_6 {
        let label = format!("mixed by {}, % writes:", threads_label(threads));
        let line = WRITES_6.map(|writes| (writes, Cell { writes, threads }));
        add_rows(&label, line.into_iter(), cells, contenders, report);
        let title =
            format!("{} entries, {}, over % writes", count_label(entries), threads_label(threads));
        report.chart(&format!("figure-6-{threads}t"), &title, UNIT, &label, Shape::Lines);
    }
}

fn add_figure_7(cells: &[Cell], contenders: &[Contender], entries: usize, report: &mut Report) {
    let most = threads_label(THREADS_7[THREADS_7.len() - 1]);
    for writes in WRITES_7 {
        let label = format!("mixed with {writes} % writes, threads:");
        let line = THREADS_7.map(|threads| (threads as u64, Cell { writes, threads }));
        add_rows(&label, line.into_iter(), cells, contenders, report);
        let entries = count_label(entries);
        let title = format!("{entries} entries, {writes} % writes, over threads, up to {most}");
        report.chart(&format!("figure-7-{writes}"), &title, UNIT, &label, Shape::Lines);
    }
}

/// The paper's statements about both figures.
fn add_claims(cells: &[Cell], contenders: &[Contender], report: &mut Report) {
    let line = |kind, flush| {
        let variant = Variant { kind, flush };
        contenders.iter().find(|contender| contender.variant == variant)
    };
    let hashmap = line(Kind::Hashmap, Flush::Best);
    let unflushed = line(Kind::Hashmap, Flush::None);
    let tree = line(Kind::Tree, Flush::Best);
    let few = |writes| Cell { writes, threads: 1 };
    let many = |writes| Cell { writes, threads: THREADS_6[THREADS_6.len() - 1] };
    let two = |writes| Cell { writes, threads: 2 };
    for (id, above, below, paper) in [
        ("nvbtree_vs_hashmap.1t", (tree, few(30)), (hashmap, few(30)), "above 1"),
        ("hashmap_vs_nvbtree.8t", (hashmap, many(30)), (tree, many(30)), "above 1"),
        ("flush_overhead.hashmap.1t", (unflushed, few(100)), (hashmap, few(100)), "1.4 to 1.8"),
        ("flush_overhead.hashmap.8t", (unflushed, many(100)), (hashmap, many(100)), "1 and below"),
        ("scaling.hashmap.2t", (hashmap, two(100)), (hashmap, few(100)), "it scales"),
        ("scaling.nvbtree.2t", (tree, two(100)), (tree, few(100)), "it does not"),
    ] {
        let mops = |(line, cell): (Option<&Contender>, Cell)| {
            let index = cells.iter().position(|measured| *measured == cell)?;
            let line = line?;
            let text = format!(
                "{} by {} with {} % writes {:.2}",
                line.variant.name(),
                threads_label(cell.threads),
                cell.writes,
                line.mops[index].median()
            );
            Some((line.mops[index].clone(), text))
        };
        let (Some((above, above_text)), Some((below, below_text))) = (mops(above), mops(below))
        else {
            continue;
        };
        let against = format!("{UNIT}: {above_text}, {below_text}; the paper: {paper}");
        report.claim(&format!("maps.mixed.{id}"), &above.over(&below), "x", against, None);
    }
}
