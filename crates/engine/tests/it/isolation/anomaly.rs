//! Anomalies of a history, by the names of Adya and of Elle.
//!
//! A list tells in which order transactions have appended to it. So each read of a list tells which
//! transactions came before, and which one came next. These are the edges of a graph:
//!
//! | edge | from | to |
//! |---|---|---|
//! | write after write | who appended to a list | who appended next |
//! | write to read | who appended last to what was read | who has read it |
//! | read before write | who has read a list | who appended next to what was read |
//! | thread | a transaction | the next one of the same thread |
//!
//! A history is one of snapshot isolation if each cycle has two edges of the third kind, one behind
//! the other (Cerone and Gotsman, PODC 2016): write skew. It is serializable if there is no cycle.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use petgraph::algo::{has_path_connecting, tarjan_scc};
use petgraph::graph::{DiGraph, NodeIndex};

use super::history::{Digest, List, Transaction};

/// What is wrong with a history.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Anomaly {
    pub(super) kind: Kind,
    /// Whether it is one only because of the order of a thread.
    pub(super) is_of_thread: bool,
    what: String,
    /// Numbers of the transactions of the history, or of its digest.
    transactions: Vec<usize>,
}

/// An anomaly's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A transaction does not see what it did, or sees two moments.
    Internal,
    /// A number is in a list that nobody has appended to it.
    Garbage,
    /// A number is in a list twice.
    Duplicate,
    /// A list was read in two orders.
    IncompatibleOrder,
    /// Two transactions have read the same state of a list, and both have appended to it.
    LostUpdate,
    /// A cycle of writes.
    G0,
    /// A number was read that was never committed.
    G1a,
    /// A list was read between two numbers of one transaction.
    G1b,
    /// A cycle of writes, and reads of what was written.
    G1c,
    /// A cycle with one read of what was overwritten.
    GSingle,
    /// A cycle with several, no two of which come one behind the other.
    GNonadjacent,
    /// A cycle with several, some of them one behind the other: write skew. A row that is not there
    /// is an empty list, so that phantoms are among them.
    G2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edge {
    WriteAfterWrite,
    WriteToRead,
    ReadBeforeWrite,
    Thread,
}

type Edges = Vec<(usize, usize, Edge)>;

impl Anomaly {
    pub(super) fn of(
        kind: Kind,
        what: impl Into<String>,
        transactions: impl IntoIterator<Item = usize>,
    ) -> Self {
        let transactions = transactions.into_iter().collect();
        Anomaly { kind, is_of_thread: false, what: what.into(), transactions }
    }
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Anomaly { kind, is_of_thread, what, transactions } = self;
        let by_thread = if *is_of_thread { ", by the order of a thread" } else { "" };
        write!(f, "{kind:?}{by_thread}: {what} (transactions {transactions:?})")
    }
}

/// What is wrong with a history; nothing if it is one of snapshot isolation.
pub(super) fn check(history: &[Transaction]) -> Result<(), Anomaly> {
    check_as(history, false)
}

/// What is wrong with a history; nothing if it is serializable.
pub(super) fn check_serializable(history: &[Transaction]) -> Result<(), Anomaly> {
    check_as(history, true)
}

fn check_as(history: &[Transaction], is_serializable: bool) -> Result<(), Anomaly> {
    let digest = Digest::of(history, is_serializable)
        .map_err(|(number, what)| Anomaly::of(Kind::Internal, what, [number]))?;
    let writers = Writers::of(&digest);
    writers.check_reads(&digest)?;
    let lists = longest_lists(&digest)?;
    check_updates(&digest)?;
    let edges = edges(&digest, &writers, &lists);
    let describe = |anomaly: Anomaly| {
        let of = anomaly.transactions.iter().map(|number| &digest.nodes[*number]);
        let what = format!("{} {:?}", anomaly.what, of.collect::<Vec<_>>());
        Anomaly { what, ..anomaly }
    };
    check_cycles(digest.nodes.len(), &edges, is_serializable).map_err(describe)
}

/// Who has appended the numbers that were committed.
struct Writers(BTreeMap<(u32, u16), usize>);

impl Writers {
    fn of(digest: &Digest) -> Self {
        let of_node = |(number, node): (usize, &super::history::Node)| {
            let lists = node.appends.clone().into_iter();
            lists.flat_map(move |(key, list)| list.into_iter().map(move |of| ((key, of), number)))
        };
        Writers(digest.nodes.iter().enumerate().flat_map(of_node).collect())
    }

    fn get(&self, key: u32, number: u16) -> Option<usize> {
        self.0.get(&(key, number)).copied()
    }

    /// Whether all that was read was committed, as a whole, and once.
    fn check_reads(&self, digest: &Digest) -> Result<(), Anomaly> {
        let reads = digest.nodes.iter().enumerate();
        for (reader, (key, list)) in
            reads.flat_map(|(reader, node)| node.reads.iter().map(move |read| (reader, read)))
        {
            for number in list {
                let what = || format!("{number} in {key}, read as {list:?}");
                if digest.taken_back.contains(&(*key, *number)) {
                    return Err(Anomaly::of(Kind::G1a, what(), [reader]));
                }
                if self.get(*key, *number).is_none() {
                    return Err(Anomaly::of(Kind::Garbage, what(), [reader]));
                }
            }
            let all: BTreeSet<&u16> = list.iter().collect();
            if all.len() < list.len() {
                return Err(Anomaly::of(Kind::Duplicate, format!("{key}: {list:?}"), [reader]));
            }
            let Some(last) = list.last() else { continue };
            let writer = self.get(*key, *last).expect("all of them were written");
            let of_writer = &digest.nodes[writer].appends[key];
            if of_writer.last() != Some(last) {
                let what = format!("{key}, read as {list:?}, when {of_writer:?} was appended");
                return Err(Anomaly::of(Kind::G1b, what, [reader, writer]));
            }
        }
        Ok(())
    }
}

/// The longest list of each key. All others have to be beginnings of it.
fn longest_lists(digest: &Digest) -> Result<BTreeMap<u32, List>, Anomaly> {
    let mut lists: BTreeMap<u32, List> = BTreeMap::new();
    for (reader, node) in digest.nodes.iter().enumerate() {
        for (key, list) in &node.reads {
            let longest = lists.entry(*key).or_default();
            let shared = longest.len().min(list.len());
            if longest[..shared] != list[..shared] {
                let what = format!("{key} was read as {longest:?} and as {list:?}");
                return Err(Anomaly::of(Kind::IncompatibleOrder, what, [reader]));
            }
            if list.len() > shared {
                longest.clone_from(list);
            }
        }
    }
    Ok(lists)
}

/// Whether those that have read a list and appended to it have read different states of it.
fn check_updates(digest: &Digest) -> Result<(), Anomaly> {
    let mut updates: BTreeMap<(u32, &List), usize> = BTreeMap::new();
    for (number, node) in digest.nodes.iter().enumerate() {
        for (key, list) in node.reads.iter().filter(|(key, _)| node.appends.contains_key(key)) {
            if let Some(other) = updates.insert((*key, list), number) {
                let what = format!("{key} was read as {list:?} by both");
                return Err(Anomaly::of(Kind::LostUpdate, what, [other, number]));
            }
        }
    }
    Ok(())
}

fn edges(digest: &Digest, writers: &Writers, lists: &BTreeMap<u32, List>) -> Edges {
    let mut edges = Edges::new();
    let by = |key: u32, number: u16| writers.get(key, number).expect("all reads were checked");
    // Appended behind the longest list that was read, in an order that nobody knows.
    let mut unseen: BTreeMap<u32, BTreeSet<usize>> = BTreeMap::new();
    for (&(key, number), &writer) in &writers.0 {
        if !lists.get(&key).is_some_and(|list| list.contains(&number)) {
            unseen.entry(key).or_default().insert(writer);
        }
    }
    let unseen = |key: &u32| unseen.get(key).into_iter().flatten().copied();
    let mut last_of_thread: BTreeMap<usize, usize> = BTreeMap::new();
    for (number, node) in digest.nodes.iter().enumerate() {
        if let Some(before) = last_of_thread.insert(node.thread, number) {
            edges.push((before, number, Edge::Thread));
        }
        for (key, list) in &node.reads {
            if let Some(last) = list.last() {
                edges.push((by(*key, *last), number, Edge::WriteToRead));
            }
            match lists[key].get(list.len()) {
                Some(next) => edges.push((number, by(*key, *next), Edge::ReadBeforeWrite)),
                None => edges.extend(unseen(key).map(|of| (number, of, Edge::ReadBeforeWrite))),
            }
        }
    }
    for (key, list) in lists {
        let two = |two: &[u16]| (by(*key, two[0]), by(*key, two[1]), Edge::WriteAfterWrite);
        edges.extend(list.windows(2).map(two));
        let last = list.last().map(|last| by(*key, *last));
        edges.extend(
            last.into_iter()
                .flat_map(|last| unseen(key).map(move |of| (last, of, Edge::WriteAfterWrite))),
        );
    }
    edges.retain(|(from, to, _)| from != to);
    edges
}

/// Looks for cycles that are none of snapshot isolation, or for any: at first without the order of
/// threads.
fn check_cycles(nodes: usize, edges: &Edges, is_serializable: bool) -> Result<(), Anomaly> {
    use Edge::{ReadBeforeWrite, Thread, WriteAfterWrite, WriteToRead};
    for is_of_thread in [false, true] {
        let chosen = |kinds: &[Edge]| -> Graph {
            let is_chosen = |kind: &Edge| kinds.contains(kind) || is_of_thread && *kind == Thread;
            graph(nodes, edges.iter().filter(|(.., kind)| is_chosen(kind)).map(|of| (of.0, of.1)))
        };
        let anomaly = |kind, of: Vec<usize>| {
            let what = "a cycle of these:";
            Err(Anomaly { is_of_thread, ..Anomaly::of(kind, what, of) })
        };
        if let Some(cycle) = cycle(&chosen(&[WriteAfterWrite])) {
            return anomaly(Kind::G0, cycle);
        }
        let steps = chosen(&[WriteAfterWrite, WriteToRead]);
        if let Some(cycle) = cycle(&steps) {
            return anomaly(Kind::G1c, cycle);
        }
        let overwritten = chosen_alone(nodes, edges, ReadBeforeWrite);
        let Some(cycle) = cycle(&with_one_more(&steps, &overwritten)) else {
            let all = chosen(&[WriteAfterWrite, WriteToRead, ReadBeforeWrite]);
            match cycle(&all).filter(|_| is_serializable) {
                Some(cycle) => return anomaly(Kind::G2, cycle),
                None => continue,
            }
        };
        for edge in overwritten.edge_indices() {
            let (reader, writer) = overwritten.edge_endpoints(edge).expect("an edge");
            if has_path_connecting(&steps, writer, reader, None) {
                return anomaly(Kind::GSingle, vec![reader.index(), writer.index()]);
            }
        }
        return anomaly(Kind::GNonadjacent, cycle);
    }
    Ok(())
}

type Graph = DiGraph<(), ()>;

fn graph(nodes: usize, edges: impl Iterator<Item = (usize, usize)>) -> Graph {
    let mut graph = Graph::new();
    for _ in 0..nodes {
        graph.add_node(());
    }
    graph.extend_with_edges(edges.map(|(from, to)| (NodeIndex::new(from), NodeIndex::new(to))));
    graph
}

fn chosen_alone(nodes: usize, edges: &Edges, kind: Edge) -> Graph {
    graph(nodes, edges.iter().filter(|(.., of)| *of == kind).map(|of| (of.0, of.1)))
}

/// Steps, each perhaps followed by one of `others`.
fn with_one_more(steps: &Graph, others: &Graph) -> Graph {
    let mut both = steps.clone();
    for edge in steps.edge_indices() {
        let (from, to) = steps.edge_endpoints(edge).expect("an edge");
        let behind: Vec<NodeIndex> = others.neighbors(to).collect();
        both.extend_with_edges(behind.into_iter().map(|next| (from, next)));
    }
    both
}

/// Nodes that are in cycles with each other, or one that a step leads back to.
fn cycle(graph: &Graph) -> Option<Vec<usize>> {
    let is_cycle = |of: &Vec<NodeIndex>| of.len() > 1 || graph.contains_edge(of[0], of[0]);
    let cycle = tarjan_scc(graph).into_iter().find(is_cycle)?;
    Some(cycle.into_iter().map(NodeIndex::index).collect())
}
