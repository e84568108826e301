//! Which public methods the scenarios call. One that none calls is listed here, with the reason.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// A type, the source file that it lies in, and the files of subjects that explore it.
const TYPES: &[(&str, &str, &[&str])] = &[
    (
        "HashMap",
        "structures/src/hashmap/mod.rs",
        &["hashmap/subject", "hashmap/records", "pool/kinds"],
    ),
    ("HashMap", "structures/src/hashmap/methods.rs", &["hashmap/subject"]),
    ("ExtendibleMap", "structures/src/extendible/mod.rs", &["hashmap/subject", "hashmap/records"]),
    ("ExtendibleMap", "structures/src/extendible/methods.rs", &["hashmap/subject"]),
    (
        "RowIndex",
        "structures/src/extendible/rows/mod.rs",
        &["row_index/subject", "row_index/table"],
    ),
    ("RowIndex", "structures/src/extendible/rows/step.rs", &["row_index/table"]),
    ("HashMultiMap", "structures/src/hashmap/multi.rs", &["multimap/subject", "pool/kinds"]),
    ("HashMultiMap", "structures/src/hashmap/methods.rs", &["multimap/subject"]),
    ("ExtendibleMultiMap", "structures/src/extendible/multi/mod.rs", &["multimap/subject"]),
    ("BatchMap", "structures/src/batch_map/mod.rs", &["batch_map/subject", "pool/kinds"]),
    ("BatchMap", "structures/src/batch_map/methods.rs", &["batch_map/subject"]),
    ("List", "structures/src/batch_list/mod.rs", &["batch_list/subject", "pool/kinds"]),
    ("Persister", "structures/src/batch_list/mod.rs", &["batch_list/subject"]),
    ("BlinkTree", "structures/src/blink_tree/mod.rs", &["blink_tree/subject", "pool/kinds"]),
    ("BlinkTree", "structures/src/blink_tree/methods.rs", &["blink_tree/subject"]),
    ("BlinkTree", "structures/src/blink_tree/ranges.rs", &["blink_tree/subject"]),
    ("BlinkTree", "structures/src/blink_tree/member.rs", &["blink_tree/subject"]),
    ("BpTree", "structures/src/papers/bptree/mod.rs", &["bptree/subject", "pool/kinds"]),
    ("BpMultiTree", "structures/src/papers/bptree/multi.rs", &["bptree/subject"]),
    ("Vector", "structures/src/vector/mod.rs", &["vector/subject", "pool/kinds"]),
    ("AppendVector", "structures/src/vector/append.rs", &["vector/subject"]),
    ("Log", "structures/src/log/mod.rs", &["log/subject"]),
    ("Tail", "structures/src/log/tail.rs", &["log/subject"]),
    ("Batch", "structures/src/batch/mod.rs", &["batch/subject"]),
    ("Batch", "structures/src/batch/ops.rs", &["batch/subject"]),
    ("Step", "structures/src/shared/step.rs", &["shared/subject"]),
    ("Recovery", "structures/src/shared/recovery.rs", &["shared/owner"]),
    ("HashMap", "structures/src/hashmap/step.rs", &["shared/subject"]),
    ("BlinkTree", "structures/src/blink_tree/step.rs", &["shared/subject"]),
    ("Vector", "structures/src/vector/step.rs", &["shared/subject"]),
    ("Log", "structures/src/log/step.rs", &["shared/subject"]),
    ("SharedTx", "structures/src/line_tx/step.rs", &["shared/subject"]),
    ("Tx", "structures/src/line_tx/mod.rs", &["line_tx/handles"]),
    (
        "SharedTx",
        "structures/src/line_tx/shared.rs",
        &["line_tx/handles", "pool/kinds", "line_tx/subject"],
    ),
    ("TxArray", "structures/src/line_tx/shared.rs", &["line_tx/subject"]),
    ("TxValue", "structures/src/line_tx/value.rs", &["line_tx/handles"]),
    ("BoundedBuffer", "structures/src/papers/bounded_buffer.rs", &["line_tx/handles"]),
    (
        "Database",
        "engine/src/database.rs",
        &["engine/subject", "engine/online", "engine/transactions", "../pools"],
    ),
    ("Database", "engine/src/alter.rs", &["engine/columns"]),
    ("Database", "engine/src/database/in_transaction.rs", &["engine/promises"]),
    ("Database", "engine/src/placement.rs", &["engine/online"]),
    ("Database", "engine/src/replicate/apply.rs", &["engine/copies"]),
    ("Database", "engine/src/replicate/database.rs", &["engine/copies"]),
    ("Database", "engine/src/replicate/export.rs", &["engine/copies"]),
    ("Transaction", "engine/src/replicate/database.rs", &["engine/copies"]),
    (
        "Table",
        "engine/src/database.rs",
        &[
            "engine/subject",
            "engine/online",
            "engine/ordered",
            "engine/sums",
            "engine/transactions",
        ],
    ),
    ("Database", "engine/src/database/dictionaries.rs", &["engine/online"]),
    ("Table", "engine/src/database/dictionaries.rs", &["engine/online"]),
    ("Database", "engine/src/database/foreign_keys.rs", &["engine/foreign"]),
    ("Table", "engine/src/database/foreign_keys.rs", &["engine/foreign"]),
    (
        "Transaction",
        "engine/src/transaction/session.rs",
        &["engine/subject", "engine/transactions", "engine/foreign"],
    ),
    ("Database", "engine/src/sequence/mod.rs", &["engine/sequences"]),
    ("Sequence", "engine/src/sequence/mod.rs", &["engine/sequences"]),
    ("Get", "engine/src/query/get.rs", &["engine/subject", "engine/transactions"]),
    ("Find", "engine/src/query/find.rs", &["engine/subject"]),
    ("Scan", "engine/src/query/select.rs", &["engine/sums"]),
    ("Upsert", "engine/src/query/upsert.rs", &["engine/subject", "engine/transactions"]),
    ("Range", "engine/src/query/range.rs", &["engine/ordered"]),
    ("Update", "engine/src/query/change.rs", &["engine/subject", "engine/transactions"]),
    ("Delete", "engine/src/query/change.rs", &["engine/subject", "engine/transactions"]),
    ("Disk", "blockdev/src/disk/mod.rs", &["disk/subject", "pool/kinds"]),
    ("Transaction", "blockdev/src/disk/mod.rs", &["disk/subject"]),
    ("Snapshot", "blockdev/src/disk/mod.rs", &["disk/subject"]),
    ("File", "blockdev/src/file/mod.rs", &["file/subject", "pool/kinds"]),
    ("Pool", "pmem/src/pool/mod.rs", &["pool/subject", "../pools", "pool/kinds", "heap/subject"]),
    ("Pool", "pmem/src/pool/roots.rs", &["pool/subject", "heap/subject"]),
    ("Heap", "pmem/src/heap/mod.rs", &["heap/subject"]),
    ("Lane", "pmem/src/heap/ops.rs", &["heap/subject"]),
];

/// Methods that no subject calls by themselves, and why.
const UNEXPLORED: &[(&str, &str)] = &[
    ("Batch::is_empty", COUNTS),
    ("BatchMap::compare_exchange", MODIFIES),
    ("BatchMap::contains", LOOKS_UP),
    ("BatchMap::get_or_insert_with", MODIFIES),
    ("BatchMap::is_empty", COUNTS),
    ("BatchMap::lag", TELLS),
    ("BatchMap::open_or_create", COMBINES),
    ("BatchMap::retain", MODIFIES),
    ("BatchMap::swap", MODIFIES),
    ("BatchMap::try_modify", MODIFIES),
    ("BatchMap::values", SCANS),
    ("BlinkTree::compare_exchange", MODIFIES),
    ("BlinkTree::create_with", OPTIONS),
    ("BlinkTree::first", VISITS),
    ("BlinkTree::get_or_insert_with", MODIFIES),
    ("BlinkTree::is_empty", VISITS),
    ("BlinkTree::last", VISITS),
    ("BlinkTree::levels_and_leaves", COUNTS),
    ("BlinkTree::open_or_create", COMBINES),
    ("BlinkTree::prefix", VISITS),
    ("BlinkTree::range", VISITS),
    ("BlinkTree::step", "calls Step::enter, which is explored"),
    ("BlinkTree::swap", MODIFIES),
    ("BlinkTree::try_modify", MODIFIES),
    ("BlinkTree::usage", COUNTS),
    ("BlinkTree::values", VISITS),
    ("BpMultiTree::open_or_create", COMBINES),
    ("BpMultiTree::remove_all", "calls what remove_one calls, once for each entry"),
    ("BpTree::levels_and_leaves", COUNTS),
    ("BpTree::open_or_create", COMBINES),
    ("BpTree::usage", COUNTS),
    ("Disk::check_with", "called by check"),
    ("Disk::flush", "does nothing: writes are durable when they return"),
    ("Disk::info", TELLS),
    ("Disk::lines", "called by fuzz targets"),
    ("Disk::scrub", "called by check"),
    ("ExtendibleMap::contains", LOOKS_UP),
    ("ExtendibleMap::create_with", OPTIONS),
    ("ExtendibleMap::extend", "calls put, once for each entry"),
    ("ExtendibleMap::get_with", "called by get"),
    ("ExtendibleMap::open_or_create", COMBINES),
    ("ExtendibleMap::prefetch", "changes nothing"),
    ("ExtendibleMap::retain", MODIFIES),
    ("ExtendibleMap::scan", CALLED_BY_VISITS),
    ("ExtendibleMap::usage", COUNTS),
    ("ExtendibleMap::values", SCANS),
    ("File::allocated", TELLS),
    ("File::is_empty", COUNTS),
    ("HashMap::bucket_count", COUNTS),
    ("File::lines", "called by fuzz targets"),
    ("HashMap::contains", LOOKS_UP),
    ("HashMap::create_with", OPTIONS),
    ("ExtendibleMultiMap::create_with", OPTIONS),
    ("ExtendibleMultiMap::extend", "calls insert, once for each entry"),
    ("ExtendibleMultiMap::for_each", "called by get_all"),
    ("ExtendibleMultiMap::open_or_create", COMBINES),
    ("ExtendibleMultiMap::remove_all", "calls what remove_one calls, once for each entry"),
    ("ExtendibleMultiMap::usage", COUNTS),
    ("HashMap::extend", "calls put, once for each entry"),
    ("HashMap::open_or_create", COMBINES),
    ("HashMap::retain", MODIFIES),
    ("HashMap::scan", CALLED_BY_VISITS),
    ("HashMap::usage", COUNTS),
    ("HashMap::values", SCANS),
    ("HashMultiMap::create_with", OPTIONS),
    ("HashMultiMap::extend", "calls insert, once for each entry"),
    ("HashMultiMap::open_or_create", COMBINES),
    ("HashMultiMap::remove_all", "calls what remove_one calls, once for each entry"),
    ("Heap::check_room", COUNTS),
    ("Heap::epoch", "called by the B+-tree"),
    ("Heap::generation", "called by the hash map and batched structures"),
    ("Heap::has_large", "called by disks and segments when they are opened"),
    ("Heap::has_passed", "called by the B+-tree"),
    ("Heap::large_len", "called by segments when they are opened"),
    ("Heap::owner", TELLS),
    ("Heap::try_enter_to_write", "called by the B-link tree"),
    ("Heap::wait_for_lanes", "called by batches"),
    ("Lane::allocate_zeroed", "called by the hash map, disks and files"),
    ("Lane::fence_with", "called by the hash map"),
    ("Lane::flush_noted", "called by the hash map"),
    ("Lane::index", TELLS),
    ("Lane::note_linked", "called by vectors and logs"),
    ("Lane::prepare_for", "called by steps, of which batches are made"),
    ("Lane::suspects_left", TELLS),
    ("Database::begin", "begin_with, called with other options"),
    ("Database::open_or_create", COMBINES),
    ("Database::options", "called with other names: those of `DatabaseOptions`"),
    ("Database::rebuild_progress", TELLS),
    ("Database::restore", "apply, which sets no position"),
    ("Database::schema_version", TELLS),
    ("Database::set_clock", "the clock tells when a transaction is given up, as abort does"),
    ("Database::set_snapshot_limit", "tells when who folds passes over a snapshot"),
    ("Delete::run_if", "called by run"),
    ("Delete::run_if_in", "called by run_in"),
    ("Transaction::token", TELLS),
    ("BlinkTree::abandon", "called by the engine when a pool is full"),
    ("BlinkTree::create_in_lane", "called by the engine for each ordered index of a table"),
    ("BlinkTree::owner_of", "called by the engine when it frees a dropped table"),
    ("RowIndex::abandon", "called by the engine when a pool is full"),
    ("RowIndex::create_in_lane", "called by the engine for each index of a table"),
    ("RowIndex::is_one_word", "compares two hashes, for the engine, which tests it"),
    ("RowIndex::owner_of", "called by the engine when it frees a dropped table"),
    ("RowIndex::usage", COUNTS),
    ("TxValue::create", "called by open_or_create"),
    ("List::open_or_create", COMBINES),
    ("Log::is_empty", COUNTS),
    ("Log::open_or_create", COMBINES),
    ("Persister::lag", TELLS),
    ("Pool::create_root_with", "called by create_root, and by each structure"),
    ("Pool::guarantee", TELLS),
    ("Pool::has_root", TELLS),
    ("Pool::live_roots", TELLS),
    ("Pool::opens", TELLS),
    ("Pool::options", "of pool files: the simulated medium is none"),
    ("Pool::path", TELLS),
    ("Pool::size_max", TELLS),
    ("Pool::uuid", TELLS),
    ("Pool::was_clean", TELLS),
    ("Tail::position", TELLS),
    ("Tail::wait", "sleeps, and then polls"),
    ("Tx::create", "called by open_or_create"),
    ("AppendVector::is_empty", COUNTS),
    ("AppendVector::open_or_create", COMBINES),
    ("Vector::is_empty", COUNTS),
    ("Vector::open_or_create", COMBINES),
    ("Step::is_empty", COUNTS),
    ("Sequence::name", TELLS),
    ("Table::name", TELLS),
    ("Table::placement", TELLS),
    ("TxArray::is_empty", COUNTS),
    ("TxArray::len", COUNTS),
];

const CALLED_BY_VISITS: &str = "called by for_each";
const COMBINES: &str = "opens or creates, and both are explored";
const OPTIONS: &str = "create, called with other options";
const COUNTS: &str = "counts and changes nothing";
const LOOKS_UP: &str = "looks up as get does";
const MODIFIES: &str = "changes entries by modify alone";
const SCANS: &str = "scans as for_each does";
const TELLS: &str = "tells what is known and reads no persistent memory";
const VISITS: &str = "visits as ascend and descend do";

/// Public methods of a type in a source text.
fn methods<'t>(text: &'t str, name: &str) -> BTreeSet<&'t str> {
    let mut found = BTreeSet::new();
    let mut is_inside = false;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("impl") {
            is_inside = implements(rest, name);
        } else if line == "}" {
            is_inside = false;
        } else if is_inside && let Some(rest) = line.strip_prefix("    pub ") {
            let rest = rest.trim_start_matches("const ").trim_start_matches("unsafe ");
            let function = rest.strip_prefix("fn ").and_then(|rest| rest.split(['(', '<']).next());
            found.extend(function);
        }
    }
    found
}

/// Whether an `impl` block, from its generics on, is the type's own.
fn implements(block: &str, name: &str) -> bool {
    let mut depth = 0_usize;
    let after = |c: char| {
        depth = if c == '<' { depth + 1 } else { depth - usize::from(c == '>' && depth > 0) };
        depth == 0 && c != '>'
    };
    let start = block.find(after).unwrap_or(block.len());
    let head = block[start..].trim_start();
    !block.contains(" for ")
        && head.strip_prefix(name).is_some_and(|rest| rest.starts_with(['<', ' ']))
}

#[test]
fn every_public_method_is_explored_or_it_is_said_why_not() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &Path| {
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let mut unexplored = BTreeSet::new();
    for (name, source, subjects) in TYPES {
        let text = read(&root.parent().expect("among the crates").join(source));
        let methods = methods(&text, name);
        assert!(!methods.is_empty(), "no public method of {name} in {source}");
        let subjects: Vec<String> = subjects
            .iter()
            .map(|subject| read(&root.join(format!("src/subjects/{subject}.rs"))))
            .collect();
        let is_called = |method: &&&str| {
            let calls = [format!(".{method}("), format!("::{method}")];
            subjects.iter().any(|subject| calls.iter().any(|call| subject.contains(call)))
        };
        let missing = methods.iter().filter(|method| !is_called(method));
        unexplored.extend(missing.map(|method| format!("{name}::{method}")));
    }
    let explained: BTreeSet<String> =
        UNEXPLORED.iter().map(|(method, _)| (*method).to_owned()).collect();
    let unexplained: Vec<_> = unexplored.difference(&explained).collect();
    assert!(
        unexplained.is_empty(),
        "no subject calls these, and no reason is given: {unexplained:?}"
    );
    let outdated: Vec<_> = explained.difference(&unexplored).collect();
    assert!(outdated.is_empty(), "these are explored by now, or gone: {outdated:?}");
}
