//! The persistency model as a table: what a crash may leave of a few stores.

use std::collections::BTreeSet;

use remanent_crashsim::{Class, Granularity, Points, Rng, Sim, SimOptions, litmus};
use remanent_pmem::Medium;

/// Words to watch: two in one line, one in another line, one in another sector and page.
const A: u64 = 0;
const B: u64 = 8;
const C: u64 = 64;
const D: u64 = 4096;

struct Litmus {
    name: &'static str,
    program: fn(&Sim),
    /// The four words that a crash right after the program may leave, in ascending order.
    left: &'static [[u64; 4]],
}

#[rustfmt::skip]
const LINES: &[Litmus] = &[
    Litmus { name: "nothing", program: |_| {}, left: &[[0, 0, 0, 0]] },
    Litmus { name: "a store may survive, evicted, or not", program: |m| m.store(A, 1),
        left: &[[0, 0, 0, 0], [1, 0, 0, 0]] },
    Litmus { name: "a line holds a prefix of its stores",
        program: |m| { m.store(A, 1); m.store(B, 2); m.store(A, 3); },
        left: &[[0, 0, 0, 0], [1, 0, 0, 0], [1, 2, 0, 0], [3, 2, 0, 0]] },
    Litmus { name: "lines are independent: three stores in three lines are eight images",
        program: |m| { m.store(A, 1); m.store(C, 2); m.store(D, 3); },
        left: &[[0, 0, 0, 0], [0, 0, 0, 3], [0, 0, 2, 0], [0, 0, 2, 3],
                [1, 0, 0, 0], [1, 0, 0, 3], [1, 0, 2, 0], [1, 0, 2, 3]] },
    Litmus { name: "a flush without a fence is not durable",
        program: |m| { m.store(A, 1); m.flush(A, 8); },
        left: &[[0, 0, 0, 0], [1, 0, 0, 0]] },
    Litmus { name: "a fence without a flush is nothing",
        program: |m| { m.store(A, 1); m.fence(); },
        left: &[[0, 0, 0, 0], [1, 0, 0, 0]] },
    Litmus { name: "a flush before the store is nothing",
        program: |m| { m.flush(A, 8); m.store(A, 1); m.fence(); },
        left: &[[0, 0, 0, 0], [1, 0, 0, 0]] },
    Litmus { name: "flush and fence make durable",
        program: |m| { m.store(A, 1); m.persist(A, 8); },
        left: &[[1, 0, 0, 0]] },
    Litmus { name: "a flush covers the whole line, and what came before alone",
        program: |m| { m.store(B, 2); m.flush(A, 1); m.store(A, 1); m.fence(); },
        left: &[[0, 2, 0, 0], [1, 2, 0, 0]] },
    Litmus { name: "a range is flushed to its last line",
        program: |m| { m.store(A, 1); m.store(C, 3); m.persist(60, 5); },
        left: &[[1, 0, 3, 0]] },
    Litmus { name: "a persisted line orders what follows",
        program: |m| { m.store(A, 1); m.persist(A, 8); m.store(C, 2); },
        left: &[[1, 0, 0, 0], [1, 0, 2, 0]] },
    Litmus { name: "another thread's fence does not persist this one's flush",
        program: |m| { m.store(A, 1); m.flush(A, 8); m.as_thread(1, |m| m.fence()); },
        left: &[[0, 0, 0, 0], [1, 0, 0, 0]] },
    Litmus { name: "a thread persists another one's store",
        program: |m| { m.store(A, 1); m.as_thread(1, |m| m.persist(A, 8)); },
        left: &[[1, 0, 0, 0]] },
    Litmus { name: "stores of two threads to one line are one list",
        program: |m| { m.store(A, 1); m.as_thread(1, |m| m.store(B, 2)); },
        left: &[[0, 0, 0, 0], [1, 0, 0, 0], [1, 2, 0, 0]] },
    Litmus { name: "a compare-exchange neither persists its line nor, by default, orders flushes",
        program: |m| {
            m.store(A, 1); m.flush(A, 8);
            assert_eq!(m.compare_exchange(C, 0, 2), Ok(0));
        },
        left: &[[0, 0, 0, 0], [0, 0, 2, 0], [1, 0, 0, 0], [1, 0, 2, 0]] },
    Litmus { name: "a compare-exchange that fails stores nothing",
        program: |m| assert_eq!(m.compare_exchange(A, 7, 2), Err(0)),
        left: &[[0, 0, 0, 0]] },
    Litmus { name: "a pair is two stores in either order",
        program: |m| assert_eq!(m.compare_exchange_pair(A, [0, 0], [1, 2]), Ok([0, 0])),
        left: &[[0, 0, 0, 0], [0, 2, 0, 0], [1, 0, 0, 0], [1, 2, 0, 0]] },
    Litmus { name: "streamed words survive in any subset",
        program: |m| m.write_streaming(A, &[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]),
        left: &[[0, 0, 0, 0], [0, 2, 0, 0], [1, 0, 0, 0], [1, 2, 0, 0]] },
    Litmus { name: "streamed words need a fence alone",
        program: |m| { m.write_streaming(A, &[1; 16]); m.fence(); },
        left: &[[0x0101_0101_0101_0101, 0x0101_0101_0101_0101, 0, 0]] },
    Litmus { name: "another thread's fence does not wait for streamed words",
        program: |m| { m.write_streaming(A, &1u64.to_le_bytes()); m.as_thread(1, |m| m.fence()); },
        left: &[[0, 0, 0, 0], [1, 0, 0, 0]] },
    Litmus { name: "a streamed word is not ordered with the stores of its line",
        program: |m| { m.store(A, 1); m.write_streaming(B, &2u64.to_le_bytes()); },
        left: &[[0, 0, 0, 0], [0, 2, 0, 0], [1, 0, 0, 0], [1, 2, 0, 0]] },
    Litmus { name: "the last store to a word wins, streamed or not",
        program: |m| {
            m.write_streaming(A, &1u64.to_le_bytes()); m.store(A, 2); m.store(B, 3);
        },
        left: &[[0, 0, 0, 0], [1, 0, 0, 0], [2, 0, 0, 0], [2, 3, 0, 0]] },
    Litmus { name: "a durable streamed word is not overwritten by an earlier store",
        program: |m| {
            m.store(A, 1); m.write_streaming(A, &2u64.to_le_bytes()); m.store(B, 3); m.fence();
        },
        left: &[[2, 0, 0, 0], [2, 3, 0, 0]] },
    Litmus { name: "a durable store is not overwritten by an earlier streamed word",
        program: |m| {
            m.as_thread(1, |m| m.write_streaming(A, &1u64.to_le_bytes()));
            m.store(A, 2); m.persist(A, 8);
        },
        left: &[[2, 0, 0, 0]] },
    Litmus { name: "a released page is old or zero as a whole",
        program: |m| {
            m.store(A, 1); m.store(C, 2); m.flush(A, 128); m.fence();
            assert!(m.release(0, 4096));
        },
        left: &[[0, 0, 0, 0], [1, 0, 2, 0]] },
    Litmus { name: "a fence does not make a release durable",
        program: |m| { m.store(A, 1); m.persist(A, 8); m.release(0, 4096); m.persist(A, 8); },
        left: &[[0, 0, 0, 0], [1, 0, 0, 0]] },
    Litmus { name: "a sync makes a release durable, also another thread's",
        program: |m| {
            m.store(A, 1); m.persist(A, 8); m.release(0, 4096);
            m.as_thread(1, |m| m.sync_file().expect("synced"));
        },
        left: &[[0, 0, 0, 0]] },
    Litmus { name: "a sync makes no store durable",
        program: |m| { m.store(A, 1); m.flush(A, 8); m.sync_file().expect("synced"); },
        left: &[[0, 0, 0, 0], [1, 0, 0, 0]] },
    Litmus { name: "a release comes with what was durably stored to the page since",
        program: |m| {
            m.store(A, 1); m.persist(A, 8); m.release(0, 4096); m.store(B, 2); m.persist(B, 8);
        },
        left: &[[0, 2, 0, 0]] },
    Litmus { name: "a release comes with what was durably streamed to the page since",
        program: |m| {
            m.store(A, 1); m.persist(A, 8); m.release(0, 4096);
            m.write_streaming(B, &2u64.to_le_bytes()); m.fence();
        },
        left: &[[0, 2, 0, 0]] },
    Litmus { name: "zeros that are durably stored over a release are zeros",
        program: |m| {
            m.store(A, 1); m.persist(A, 8); m.release(0, 4096); m.write_zeros(0, 64); m.persist(0, 64);
        },
        left: &[[0, 0, 0, 0]] },
    Litmus { name: "what is stored to a released page survives with the release alone",
        program: |m| {
            m.store(A, 1); m.persist(A, 8); m.release(0, 4096); m.store(B, 2);
        },
        left: &[[0, 0, 0, 0], [0, 2, 0, 0], [1, 0, 0, 0]] },
    Litmus { name: "an unfenced release of words that were not durable",
        program: |m| { m.store(A, 1); m.release(0, 4096); },
        left: &[[0, 0, 0, 0], [1, 0, 0, 0]] },
];

#[rustfmt::skip]
const SECTORS: &[Litmus] = &[
    Litmus { name: "a sector holds a prefix of its stores, whatever their lines",
        program: |m| { m.store(A, 1); m.store(C, 2); m.store(B, 3); },
        left: &[[0, 0, 0, 0], [1, 0, 0, 0], [1, 0, 2, 0], [1, 3, 2, 0]] },
    Litmus { name: "sectors are independent",
        program: |m| { m.store(A, 1); m.store(D, 2); },
        left: &[[0, 0, 0, 0], [0, 0, 0, 2], [1, 0, 0, 0], [1, 0, 0, 2]] },
    Litmus { name: "a flush covers its page",
        program: |m| { m.store(A, 1); m.store(D, 2); m.persist(2048, 8); },
        left: &[[1, 0, 0, 0], [1, 0, 0, 2]] },
    Litmus { name: "a streamed range needs a fence alone here too",
        program: |m| { m.write_streaming(A, &1u64.to_le_bytes()); m.fence(); },
        left: &[[1, 0, 0, 0]] },
];

/// The file begins with one page, so `D` lies behind its end.
#[rustfmt::skip]
const LENGTHS: &[Litmus] = &[
    Litmus { name: "a length is durable after a sync alone, and what lies behind the old one with it",
        program: |m| { m.grow(8192).expect("room"); m.store(D, 1); m.persist(D, 8); },
        left: &[[0, 0, 0, 0], [0, 0, 0, 1]] },
    Litmus { name: "lines before the old end do not wait for the length",
        program: |m| { m.grow(8192).expect("room"); m.store(A, 1); m.persist(A, 8); m.store(D, 2); },
        left: &[[1, 0, 0, 0], [1, 0, 0, 2]] },
    Litmus { name: "a sync makes the length durable",
        program: |m| {
            m.grow(8192).expect("room"); m.sync_file().expect("synced");
            m.store(D, 1); m.persist(D, 8);
        },
        left: &[[0, 0, 0, 1]] },
    Litmus { name: "each length that the file had may be left",
        program: |m| {
            m.grow(8192).expect("room"); m.store(D, 1); m.persist(D, 8);
            m.grow(16384).expect("room"); m.store(A, 1);
        },
        left: &[[0, 0, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0], [1, 0, 0, 1]] },
];

fn check(table: &[Litmus], options: &SimOptions) {
    for &Litmus { name, program, left } in table {
        let found = litmus(options, Points::Fences, &[A, B, C, D], program);
        let expected: BTreeSet<Vec<u64>> = left.iter().map(|words| words.to_vec()).collect();
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn lines() {
    check(LINES, &SimOptions::default());
}

#[test]
fn lengths() {
    let options = SimOptions { len: 4096, capacity: 1 << 20, ..SimOptions::default() };
    check(LENGTHS, &options);
    check(LENGTHS, &SimOptions { granularity: Granularity::Page, ..options });
}

#[test]
fn the_death_of_a_process_keeps_lengths_and_holes() {
    let class = Class::Process;
    let options = SimOptions { len: 4096, capacity: 1 << 20, class, ..SimOptions::default() };
    let left = litmus(&options, Points::Fences, &[A, D], |medium| {
        medium.store(A, 1);
        medium.grow(8192).expect("room");
        medium.store(D, 2);
        assert!(medium.release(0, 4096));
    });
    assert_eq!(left, [vec![0, 2]].into());
}

#[test]
fn sectors() {
    check(SECTORS, &SimOptions { granularity: Granularity::Page, ..SimOptions::default() });
}

#[test]
fn a_locked_instruction_orders_flushes_where_it_does() {
    let options = SimOptions { rmw_orders_flushes: true, ..SimOptions::default() };
    let left = litmus(&options, Points::Fences, &[A, C], |medium| {
        medium.store(A, 1);
        medium.flush(A, 8);
        medium.fetch_add(C, 2);
    });
    assert_eq!(left, [vec![1, 0], vec![1, 2]].into());
}

#[test]
fn the_death_of_a_process_takes_nothing() {
    let options = SimOptions { class: Class::Process, ..SimOptions::default() };
    let left = litmus(&options, Points::Stores, &[A, C], |medium| {
        assert!(!medium.needs_flush());
        medium.store(A, 1);
        medium.write_streaming(C, &2u64.to_le_bytes());
        medium.store(A, 3);
    });
    assert_eq!(left, [vec![0, 0], vec![1, 0], vec![1, 2], vec![3, 2]].into());
}

#[test]
fn a_crash_at_any_moment_leaves_what_any_prefix_of_the_program_leaves() {
    let left = litmus(&SimOptions::default(), Points::Stores, &[A, C], |medium| {
        medium.store(A, 1);
        medium.persist(A, 8);
        medium.store(C, 2);
    });
    assert_eq!(left, [vec![0, 0], vec![1, 0], vec![1, 2]].into());
}

/// The same by a simpler model: of each line, the stores before a flush are durable once the same
/// thread has fenced, and any longer prefix may survive.
#[test]
fn random_programs_leave_what_a_second_model_says() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let program: Vec<Step> = (0..10).map(|_| Step::draw(&mut rng)).collect();
        let found = litmus(&SimOptions::default(), Points::Fences, &[A, B, C], |medium| {
            program.iter().for_each(|step| step.run(medium));
        });
        assert_eq!(found, second_model(&program), "{program:?}");
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Store(u64, u64),
    Flush(u64, u64),
    Fence(u64),
}

impl Step {
    fn draw(rng: &mut Rng) -> Self {
        let thread = rng.below(2);
        match rng.below(4) {
            0 => Step::Flush(*rng.pick(&[A, C]), thread),
            1 => Step::Fence(thread),
            _ => Step::Store(*rng.pick(&[A, B, C]), 1 + rng.below(3)),
        }
    }

    fn run(self, medium: &Sim) {
        match self {
            Step::Store(offset, value) => medium.store(offset, value),
            Step::Flush(offset, thread) => {
                medium.as_thread(thread, |medium| medium.flush(offset, 8))
            }
            Step::Fence(thread) => medium.as_thread(thread, |medium| medium.fence()),
        }
    }
}

fn second_model(program: &[Step]) -> BTreeSet<Vec<u64>> {
    let outcomes = |line: u64| -> BTreeSet<[u64; 2]> {
        let is_fenced = |&(at, step): &(usize, &Step)| match *step {
            Step::Flush(offset, thread) if offset == line => program[at..]
                .iter()
                .any(|later| matches!(later, Step::Fence(fencer) if *fencer == thread)),
            _ => false,
        };
        let certain = program.iter().enumerate().filter(is_fenced).map(|(at, _)| at).max();
        (certain.unwrap_or(0)..=program.len())
            .map(|end| {
                let mut words = [0; 2];
                for step in &program[..end] {
                    match *step {
                        Step::Store(offset, value) if offset / 64 * 64 == line => {
                            words[(offset % 64 / 8) as usize] = value;
                        }
                        _ => {}
                    }
                }
                words
            })
            .collect()
    };
    let second = outcomes(C);
    outcomes(A)
        .iter()
        .flat_map(|first| second.iter().map(move |second| vec![first[0], first[1], second[0]]))
        .collect()
}
