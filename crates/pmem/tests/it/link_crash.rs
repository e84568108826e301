//! Fresh blocks and links, crashed everywhere: a stack of one link, which any thread pushes and
//! pops.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use remanent_crashsim::{Config, Outcome, Rng, Sim, SimOptions, Sources, Subject, explore, mutate};
use remanent_pmem::persistent::read_value;
use remanent_pmem::{Dirty, Fresh, Link, Off, Persistent, Word, fence};

const HEAD: u64 = 0;
const NODES: u64 = 4096;

#[derive(Clone, Copy, Persistent)]
#[repr(C)]
struct Node {
    next: Off<Node>,
    value: u64,
}

/// The stack, and where the next node goes. Nodes that were popped are not used again before a
/// crash.
struct Stack {
    medium: Arc<Sim>,
    free: AtomicU64,
}

impl Stack {
    fn head(&self) -> Link<'_, Arc<Sim>> {
        Link::at(&self.medium, HEAD)
    }

    /// Nodes from the top down, while nobody else is at work.
    fn nodes(&self) -> Vec<(u64, Node)> {
        let mut nodes = Vec::new();
        let mut offset = self.head().load().offset();
        while offset != 0 {
            let node: Node = read_value(&self.medium, offset);
            nodes.push((offset, node));
            offset = node.next.raw();
        }
        nodes
    }

    fn push(&self, value: u64) {
        let offset = self.free.fetch_add(64, Ordering::Relaxed);
        // SAFETY: the offset was just taken from `free`, and no thread gets it twice.
        let mut node: Fresh<'_, Node, Dirty, _> =
            unsafe { Fresh::from_raw(&self.medium, offset, 64) };
        // Redundant: the push that follows flushes the same line before it is acknowledged.
        let mut top = self.head().load_durable();
        node.write_value(Node { next: top.target(), value });
        let mut node = fence(node.flush());
        while let Err((_, refused)) = self.head().publish(top, node) {
            let mut refused = refused.reopen();
            // Redundant: as above.
            top = self.head().load_durable();
            refused.write(0, top.target::<Node>());
            node = fence(refused.flush());
        }
    }

    fn pop(&self) -> Option<u64> {
        loop {
            let top = self.head().load_durable();
            if top.is_null() {
                return None;
            }
            let node: Node = read_value(&self.medium, top.offset());
            if self.head().replace(top, Word::to(node.next.raw())).is_ok() {
                return Some(node.value);
            }
        }
    }

    fn top(&self) -> Option<u64> {
        let top = self.head().load_durable();
        (!top.is_null()).then(|| read_value::<Node>(&self.medium, top.offset()).value)
    }
}

#[derive(Clone, Debug)]
enum Op {
    Push(u64),
    Pop,
    Top,
}

struct StackSubject;

impl Subject for StackSubject {
    type Op = Op;
    type Ret = Option<u64>;
    type State = Vec<u64>;
    type Handle = Stack;

    /// An empty stack is a word of zeros.
    fn create(&self, medium: Arc<Sim>) -> Outcome<Stack> {
        self.open(medium)
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Stack> {
        let stack = Stack { medium, free: AtomicU64::new(NODES) };
        if let Some(last) = stack.nodes().iter().map(|(offset, _)| offset).max() {
            stack.free.store(last + 64, Ordering::Relaxed);
        }
        Ok(stack)
    }

    fn apply(&self, stack: &Stack, op: &Op) -> Option<u64> {
        match *op {
            Op::Push(value) => {
                stack.push(value);
                None
            }
            Op::Pop => stack.pop(),
            Op::Top => stack.top(),
        }
    }

    fn model(&self, values: &mut Vec<u64>, op: &Op) -> Option<u64> {
        match *op {
            Op::Push(value) => {
                values.push(value);
                None
            }
            Op::Pop => values.pop(),
            Op::Top => values.last().copied(),
        }
    }

    fn observe(&self, stack: &Stack) -> Outcome<Vec<u64>> {
        Ok(stack.nodes().iter().rev().map(|(_, node)| node.value).collect())
    }

    fn op(&self, rng: &mut Rng) -> Op {
        match rng.below(4) {
            0 => Op::Pop,
            1 => Op::Top,
            _ => Op::Push(1 + rng.below(1 << 32)),
        }
    }
}

fn config() -> Config {
    Config { seeds: 0..40, setup: 1, threads: 2, ops: 3, ..Config::default() }
}

#[test]
fn no_crash_takes_away_what_was_acknowledged() {
    let report = explore(&StackSubject, &Config { threads: 1, ops: 8, ..config() });
    assert!(report.is_clean(), "{report}");
    let report = explore(&StackSubject, &config());
    assert!(report.is_clean(), "{report}");
    let report = explore(&StackSubject, &Config { threads: 3, ops: 2, ..config() });
    assert!(report.is_clean(), "{report}");
}

#[test]
fn every_flush_and_fence_is_needed() {
    let sources = Sources::new().file("tests/it/link_crash.rs", include_str!("link_crash.rs"));
    let report = mutate(&StackSubject, &Config { seeds: 0..200, ..config() }, &sources);
    let mutation = report.mutation.as_ref().expect("mutate reports mutants");
    assert_eq!(mutation.survivors().count(), 0, "{report}");
}

#[test]
fn operations_keep_their_budgets() {
    let sim = Arc::new(Sim::new(SimOptions::default()));
    let stack = StackSubject.create(Arc::clone(&sim)).unwrap();
    let fences = |op: &Op| {
        sim.reset_counters();
        StackSubject.apply(&stack, op);
        sim.counters().fences
    };
    assert_eq!(fences(&Op::Push(1)), 2);
    assert_eq!(fences(&Op::Push(2)), 2);
    assert_eq!(fences(&Op::Top), 0);
    assert_eq!(fences(&Op::Pop), 1);
}
