//! Disks in the process that uses them.

use std::hint::black_box;

use anyhow::Result;
use remanent_blockdev::papers::nvramdisk::Policy;

use super::Effort;
use crate::measure::{Progress, Samples, sample_ns, timed, turns};
use crate::peers::block::{BLOCK_LEN, Contender, Kind};
use crate::report::{Report, Shape, number};
use crate::setup::Setup;
use crate::workloads::keys::mix;

/// What the paper's Table 6 compares, by name.
const POLICIES: [(&str, Policy); 6] = [
    ("P1", Policy::P1),
    ("P2", Policy::P2),
    ("P3", Policy::P3),
    ("P4", Policy::P4),
    ("P5", Policy::P5),
    ("P6", Policy::P6),
];
/// Policies whose longer requests are measured, too: the paper's choice, and the one without
/// ordering.
const IN_FIGURE_10: [(&str, Policy); 2] = [("P3", Policy::P3), ("async", Policy::ASYNC)];

/// KiB of a request.
const SIZES_KIB: [u64; 7] = [4, 8, 16, 32, 64, 128, 256];

/// Requests of each thread, if two run at the same time.
const TOGETHER: usize = 50_000;

fn kinds() -> Vec<Kind> {
    let mut kinds = vec![Kind::Disk];
    #[cfg(has_pmemblk)]
    kinds.push(Kind::Pmemblk);
    #[cfg(not(has_pmemblk))]
    eprintln!("libpmemblk is missing (Debian: libpmemblk-dev): its rows and claims are left out");
    kinds.extend([Kind::Streamed, Kind::Copied, Kind::File]);
    kinds.extend(IN_FIGURE_10.map(|(name, policy)| Kind::Nvramdisk(name, policy)));
    let others = POLICIES.into_iter().filter(|policy| !IN_FIGURE_10.contains(policy));
    kinds.extend(others.map(|(name, policy)| Kind::Nvramdisk(name, policy)));
    kinds
}

/// Whether requests of this length are measured.
fn has_size(kind: Kind, kib: u64) -> bool {
    match kind {
        Kind::Nvramdisk(name, policy) => kib == 4 || IN_FIGURE_10.contains(&(name, policy)),
        _ => true,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

impl Access {
    fn name(self) -> &'static str {
        match self {
            Access::Read => "read",
            Access::Write => "write",
        }
    }
}

/// Nanoseconds a request, by contender.
type Measured = Vec<Samples>;

/// Measures requests of every size, and two threads at once.
pub(super) fn measure(
    setup: &Setup,
    effort: &Effort,
    progress: &Progress,
    report: &mut Report,
) -> Result<()> {
    let kinds = kinds();
    progress.step("filling disks");
    let contenders =
        kinds.iter().map(|kind| kind.create(&setup.dir, effort.len)).collect::<Result<Vec<_>>>()?;
    let cases: Vec<(Access, u64)> = [Access::Write, Access::Read]
        .into_iter()
        .flat_map(|access| SIZES_KIB.map(|kib| (access, kib)))
        .collect();
    let mut measured = vec![vec![Samples::new(); kinds.len()]; cases.len()];
    let mut together = vec![Samples::new(); kinds.len()];
    let mut turn = 0;
    for round in 0..effort.rounds {
        progress.step(format!("round {} in process", round + 1));
        for (&(access, kib), samples) in cases.iter().zip(&mut measured) {
            for index in turns(kinds.len(), round).filter(|&index| has_size(kinds[index], kib)) {
                let ns = request_ns(&contenders[index], access, kib << 10, effort, &mut turn)?;
                samples[index].push(ns);
            }
        }
        for index in turns(kinds.len(), round) {
            together[index].push(two_threads_ns(&contenders[index], effort, round)?);
        }
    }
    for ((access, kib), samples) in cases.into_iter().zip(&measured) {
        add_rows(&contenders, samples, access, kib, report);
    }
    for (contender, samples) in contenders.iter().zip(&together) {
        let x = "write 4 KiB, two threads";
        report.row(&contender.name, x, &contender.ground, "ns", samples);
    }
    drop(contenders);
    add_claims(&kinds, &measured, &together, report);
    add_policies(report);
    add_charts(report);
    Ok(())
}

/// Nanoseconds of a request at a random place, aligned to its own length.
fn request_ns(
    contender: &Contender,
    access: Access,
    len: u64,
    effort: &Effort,
    turn: &mut u64,
) -> Result<f64> {
    let mut bytes = vec![2; len as usize];
    let places = effort.len / len;
    let mut outcome = Ok(());
    let ns = sample_ns(effort.sample, turn, |turn| {
        let offset = mix(turn) % places * len;
        let done = match access {
            Access::Read => contender.blocks.read(offset, black_box(&mut bytes)),
            Access::Write => {
                bytes[..8].copy_from_slice(&turn.to_le_bytes());
                contender.blocks.write(offset, &bytes)
            }
        };
        if done.is_err() {
            outcome = done;
        }
    });
    outcome.map(|()| ns)
}

/// Nanoseconds between two writes of a block when two threads write.
fn two_threads_ns(contender: &Contender, effort: &Effort, round: usize) -> Result<f64> {
    let places = effort.len / BLOCK_LEN;
    let turns: Vec<u64> =
        (0..2 * TOGETHER as u64).map(|turn| turn + (round << 32) as u64).collect();
    let (cost, _) = timed(&turns, 2, |turns| {
        let mut bytes = [3; BLOCK_LEN as usize];
        turns.iter().try_for_each(|turn| {
            bytes[..8].copy_from_slice(&turn.to_le_bytes());
            contender.blocks.write(mix(*turn) % places * BLOCK_LEN, &bytes)
        })
    })?;
    Ok(cost.wall.as_secs_f64() * 1e9 / turns.len() as f64)
}

fn add_rows(
    contenders: &[Contender],
    measured: &Measured,
    access: Access,
    kib: u64,
    report: &mut Report,
) {
    let name = access.name();
    for (contender, ns) in contenders.iter().zip(measured) {
        let (series, ground) = (&contender.name, &contender.ground);
        report.row(series, &format!("{name} {kib} KiB"), ground, "ns", ns);
        // A policy with short requests only makes no line.
        let is_line = kib != 4 || !series.starts_with("nvramdisk") || is_in_figure_10(series);
        if is_line {
            let gigabytes_per_second = ns.reciprocal((kib << 10) as f64);
            report.row(series, &format!("{name} {kib}"), ground, "GB/s", &gigabytes_per_second);
        }
        if kib == 4 && access == Access::Write && series.starts_with("nvramdisk") {
            report.row(series, "figure 8", ground, "k/s", &ns.reciprocal(1e6));
        }
    }
}

fn is_in_figure_10(series: &str) -> bool {
    IN_FIGURE_10.iter().any(|(name, _)| series == format!("nvramdisk {name}"))
}

fn add_claims(kinds: &[Kind], measured: &[Measured], together: &Measured, report: &mut Report) {
    let of = |samples: &Measured, kind: Kind| {
        let index = kinds.iter().position(|known| *known == kind);
        index.map_or_else(Samples::new, |index| samples[index].clone())
    };
    let (writes, reads) = measured.split_at(SIZES_KIB.len());
    let (write_4k, read_4k, write_256k) = (&writes[0], &reads[0], &writes[SIZES_KIB.len() - 1]);
    let mut claim = |id: &str, samples: &Measured, against: Kind, floor| {
        let (ours, theirs) = (of(samples, Kind::Disk), of(samples, against));
        let text = format!(
            "{}: {} ns, ours {} ns",
            against.name(),
            number(theirs.median()),
            number(ours.median())
        );
        report.claim(id, &theirs.over(&ours), "x", text, floor);
    };
    claim("disk.write4k_vs_ntcopy", write_4k, Kind::Streamed, Some(1.0));
    claim("disk.write256k_vs_ntcopy", write_256k, Kind::Streamed, Some(1.0));
    claim("disk.write4k_vs_nvramdisk", write_4k, Kind::Nvramdisk("P3", Policy::P3), None);
    claim("disk.write4k_vs_memcpy", write_4k, Kind::Copied, None);
    claim("disk.write4k_vs_pwrite", write_4k, Kind::File, None);
    claim("disk.read4k_vs_memcpy", read_4k, Kind::Copied, Some(1.0));
    #[cfg(has_pmemblk)]
    {
        // A copy with one fence.
        let floor =
            Some(of(write_4k, Kind::Pmemblk).median() / of(write_4k, Kind::Streamed).median());
        claim("disk.write4k_vs_pmemblk", write_4k, Kind::Pmemblk, floor);
        claim("disk.write256k_vs_pmemblk", write_256k, Kind::Pmemblk, None);
        claim("disk.read4k_vs_pmemblk", read_4k, Kind::Pmemblk, None);
    }
    let (one, two) = (of(write_4k, Kind::Disk), of(together, Kind::Disk));
    let text = format!("one thread: {} ns", number(one.median()));
    report.claim("disk.write4k_scaling_2t", &one.over(&two), "x", text, Some(2.0));
}

/// The paper's Table 6, and the fastest policy here.
fn add_policies(report: &mut Report) {
    let ns = |name: &str| report.median(&format!("nvramdisk {name}"), "write 4 KiB");
    let mut lines = vec![["policy", "data", "map", "journal", "ns"].map(str::to_owned).to_vec()];
    let mut policies = POLICIES;
    policies.sort_by(|(left, _), (right, _)| ns(left).total_cmp(&ns(right)));
    for (name, policy) in policies {
        let methods = [policy.data, policy.map, policy.journal].map(|method| method.to_string());
        lines.push([vec![name.to_owned()], methods.to_vec(), vec![number(ns(name))]].concat());
    }
    report.table("Table 6: random writes of 4 KiB by policy, the quickest first", lines);
}

fn add_charts(report: &mut Report) {
    let title = "Random writes of 4 KiB by ordering policy";
    report.chart("figure8", title, "k/s", "figure 8", Shape::Bars);
    let title = "Random writes by KiB of a request";
    report.chart("figure10", title, "GB/s", "write ", Shape::LinesLogX);
    let title = "Random reads by KiB of a request";
    report.chart("reads", title, "GB/s", "read ", Shape::LinesLogX);
}
