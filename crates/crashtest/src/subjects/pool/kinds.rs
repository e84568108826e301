//! Structures of every kind that are created and removed in one pool: each finds what others have
//! left in the same memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use remanent_blockdev::file::File;
use remanent_blockdev::{BLOCK_LEN, Disk};
use remanent_crashsim::{Outcome, Rng, Sim, Subject};
use remanent_pmem::pool::Format;
use remanent_pmem::{Error as PoolError, Pool};
use remanent_structures::batch_list::{BatchList, List};
use remanent_structures::papers::{BpTree, Table};
use remanent_structures::{
    BatchMap, BatchOptions, BlinkTree, HashMap, HashMultiMap, Map, SharedTx, Vector,
};

use crate::answer::{Answer, is_refused};
use crate::pools::{create_pool, must_be_empty};

/// Roots of all kinds.
#[derive(Clone, Debug)]
pub(super) struct Kinds {
    /// Number of names in operations.
    pub(super) names: u64,
    /// Size beyond which the pool does not grow.
    pub(super) size_max: u64,
}

type Medium = Arc<Sim>;
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A kind of structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    HashMap,
    HashMultiMap,
    BlinkTree,
    BpTree,
    BatchMap,
    BatchList,
    SharedTx,
    Vector,
    Disk,
    File,
}

const KINDS: [Kind; 10] = [
    Kind::HashMap,
    Kind::HashMultiMap,
    Kind::BlinkTree,
    Kind::BpTree,
    Kind::BatchMap,
    Kind::BatchList,
    Kind::SharedTx,
    Kind::Vector,
    Kind::Disk,
    Kind::File,
];

/// One operation. Each opens its structure, and closes it.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Create(u64, Kind),
    Remove(u64),
    /// Stores a number in the structure.
    Put(u64, u64),
}

/// By name, the kind of a structure and the number in it.
type State = BTreeMap<u64, (Kind, u64)>;

fn name(number: u64) -> String {
    format!("root {number}")
}

/// So small that several fit into a small pool; without a thread of their own.
fn options() -> BatchOptions {
    BatchOptions { segment_len: 64 << 10, ..BatchOptions::without_thread() }
}

fn block(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat((BLOCK_LEN / 8) as usize)
}

/// The number in a block; `u64::MAX` if it is torn.
fn of_block(bytes: &[u8]) -> u64 {
    let words = bytes.as_chunks::<8>().0;
    let is_whole = words.iter().all(|word| *word == words[0]);
    if is_whole { u64::from_le_bytes(words[0]) } else { u64::MAX }
}

/// The key of the number in a map.
const KEY: u64 = 7;

fn create(pool: &Pool<Medium>, name: &str, kind: Kind) -> Result<(), Failure> {
    match kind {
        Kind::HashMap => drop(HashMap::<u64, u64, Medium>::create(pool, name)?),
        Kind::HashMultiMap => drop(HashMultiMap::<u64, u64, Medium>::create(pool, name)?),
        Kind::BlinkTree => drop(BlinkTree::<u64, u64, Medium>::create(pool, name)?),
        Kind::BpTree => drop(BpTree::<u64, u64, Medium>::create(pool, name)?),
        Kind::BatchMap => {
            BatchMap::<u64, [u8], Medium>::create(pool, name, options())?.close()?;
        }
        Kind::BatchList => drop(List::<Table, Medium>::create(pool, name, options())?),
        Kind::SharedTx => drop(SharedTx::<u64, Medium>::create(pool, name, 0)?),
        Kind::Vector => drop(Vector::<u64, Medium>::create(pool, name)?),
        Kind::Disk => drop(Disk::<Medium>::create(pool, name, 8 * BLOCK_LEN)?),
        Kind::File => drop(File::<Medium>::create(pool, name)?),
    }
    Ok(())
}

/// Stores the number durably; without a number, returns the stored one and checks the structure.
fn visit(pool: &Pool<Medium>, name: &str, kind: Kind, number: Option<u64>) -> Result<u64, Failure> {
    macro_rules! on_map {
        ($map:ty) => {{
            let map = <$map>::open(pool, name)?;
            match number {
                Some(number) => {
                    map.put(&KEY, &number)?;
                    Ok(number)
                }
                None => {
                    must_be_empty(map.check()?)?;
                    Ok(map.get(&KEY)?.unwrap_or_default())
                }
            }
        }};
    }
    match kind {
        Kind::HashMap => on_map!(HashMap<u64, u64, Medium>),
        Kind::BlinkTree => on_map!(BlinkTree<u64, u64, Medium>),
        Kind::BpTree => on_map!(BpTree<u64, u64, Medium>),
        Kind::HashMultiMap => visit_multi_map(pool, name, number),
        Kind::BatchMap => visit_batch_map(pool, name, number),
        Kind::BatchList => visit_batch_list(pool, name, number),
        Kind::SharedTx => {
            let object = SharedTx::<u64, Medium>::open(pool, name)?;
            if let Some(number) = number {
                object.set(number)?;
            }
            must_be_empty(object.check()?)?;
            Ok(object.get()?)
        }
        Kind::Vector => visit_vector(pool, name, number),
        Kind::Disk => visit_disk(pool, name, number),
        Kind::File => visit_file(pool, name, number),
    }
}

/// If there are several entries, the greatest number counts.
fn visit_multi_map(pool: &Pool<Medium>, name: &str, number: Option<u64>) -> Result<u64, Failure> {
    let map = HashMultiMap::<u64, u64, Medium>::open(pool, name)?;
    let found = map.get_all(&KEY)?;
    if let Some(number) = number {
        map.insert(&KEY, &(found.len() as u64 * SHIFT + number))?;
    } else {
        must_be_empty(map.check()?)?;
    }
    Ok(found.into_iter().max().unwrap_or_default() % SHIFT)
}

/// Numbers are smaller. An entry of a multimap also has the count of the entries before it.
const SHIFT: u64 = 1 << 32;

fn visit_batch_map(pool: &Pool<Medium>, name: &str, number: Option<u64>) -> Result<u64, Failure> {
    let map = BatchMap::<u64, [u8], Medium>::open(pool, name, options())?;
    let found = match number {
        Some(number) => {
            map.put(&KEY, &block(number))?;
            number
        }
        None => {
            must_be_empty(map.check()?)?;
            map.get_with(&KEY, of_block)?.unwrap_or_default()
        }
    };
    // Makes the put safe.
    map.close()?;
    Ok(found)
}

fn visit_batch_list(pool: &Pool<Medium>, name: &str, number: Option<u64>) -> Result<u64, Failure> {
    let mut list = List::<Table, Medium>::open(pool, name, options())?;
    match number {
        Some(number) => {
            list.insert(number, b"")?;
            list.sync()?;
            Ok(number)
        }
        None => {
            must_be_empty(list.check()?)?;
            let mut last = 0;
            list.for_each(|key, _| last = key)?;
            Ok(last)
        }
    }
}

fn visit_vector(pool: &Pool<Medium>, name: &str, number: Option<u64>) -> Result<u64, Failure> {
    let vector = Vector::<u64, Medium>::open(pool, name)?;
    if let Some(number) = number {
        vector.push(&number)?;
        return Ok(number);
    }
    must_be_empty(vector.check()?)?;
    let last = vector.len().checked_sub(1);
    Ok(last.map_or(Ok(None), |last| vector.get(last))?.unwrap_or_default())
}

fn visit_disk(pool: &Pool<Medium>, name: &str, number: Option<u64>) -> Result<u64, Failure> {
    let disk = Disk::<Medium>::open(pool, name)?;
    if let Some(number) = number {
        disk.write(BLOCK_LEN, &block(number))?;
        return Ok(number);
    }
    must_be_empty(disk.check()?)?;
    let mut bytes = vec![0; BLOCK_LEN as usize];
    disk.read(BLOCK_LEN, &mut bytes)?;
    Ok(of_block(&bytes))
}

fn visit_file(pool: &Pool<Medium>, name: &str, number: Option<u64>) -> Result<u64, Failure> {
    let file = File::<Medium>::open(pool, name)?;
    if let Some(number) = number {
        file.write(8, &number.to_le_bytes())?;
        file.sync()?;
        return Ok(number);
    }
    must_be_empty(file.check()?)?;
    let mut bytes = [0; 8];
    file.read(8, &mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// The kind of a root's structure.
fn kind_of(pool: &Pool<Medium>, name: &str) -> Result<Option<Kind>, Failure> {
    let roots = pool.roots()?;
    let Some(root) = roots.iter().find(|root| root.name == name) else { return Ok(None) };
    let found = KINDS.into_iter().find(|kind| match kind {
        Kind::Disk => Disk::<Medium>::is_one(root),
        Kind::File => File::<Medium>::is_one(root),
        kind => root.root_type.name.starts_with(prefix(*kind)),
    });
    found.map(Some).ok_or_else(|| format!("{} is of no kind", root.root_type.name).into())
}

/// The beginning of the type's name.
fn prefix(kind: Kind) -> &'static str {
    match kind {
        Kind::HashMap => "HashMap<",
        Kind::HashMultiMap => "HashMultiMap<",
        Kind::BlinkTree => "BlinkTree<",
        Kind::BpTree => "BpTree<",
        Kind::BatchMap => "BatchMap<",
        Kind::BatchList => "TableList",
        Kind::SharedTx => "Tx",
        Kind::Vector => "Vector<",
        Kind::Disk | Kind::File => unreachable!("they know their own"),
    }
}

impl Kinds {
    fn do_op(pool: &Pool<Medium>, op: &Op) -> Result<bool, Failure> {
        match *op {
            Op::Create(number, kind) => match kind_of(pool, &name(number))? {
                Some(_) => Ok(false),
                None => create(pool, &name(number), kind).map(|()| true),
            },
            Op::Remove(number) => {
                let name = name(number);
                match kind_of(pool, &name)? {
                    None => return Ok(false),
                    Some(Kind::File) => File::remove(pool, &name)?,
                    Some(_) => pool.remove_root(&name)?,
                }
                Ok(true)
            }
            Op::Put(number, value) => match kind_of(pool, &name(number))? {
                None => Ok(false),
                Some(kind) => visit(pool, &name(number), kind, Some(value)).map(|_| true),
            },
        }
    }
}

/// Whether the error means that the pool is full.
fn is_full(error: &Failure) -> bool {
    error.downcast_ref::<PoolError>().is_some_and(PoolError::is_full)
        || error.downcast_ref::<remanent_structures::Error>().is_some_and(|error| error.is_full())
        || error.downcast_ref::<remanent_blockdev::Error>().is_some_and(|error| error.is_full())
}

impl Subject for Kinds {
    type Op = Op;
    type Ret = Answer<()>;
    type State = State;
    type Handle = Pool<Medium>;

    fn create(&self, medium: Medium) -> Outcome<Self::Handle> {
        create_pool(medium, &Format::new(self.size_max))
    }

    fn open(&self, medium: Medium) -> Outcome<Self::Handle> {
        Ok(Pool::recover(medium)?)
    }

    fn apply(&self, pool: &Self::Handle, op: &Op) -> Answer<()> {
        match Self::do_op(pool, op) {
            Ok(done) => Answer::Bool(done),
            Err(error) if is_full(&error) => Answer::Refused(error.to_string()),
            Err(error) => Answer::Failed(error.to_string()),
        }
    }

    fn model(&self, state: &mut State, op: &Op) -> Answer<()> {
        Answer::Bool(match *op {
            Op::Create(number, kind) => {
                let is_new = !state.contains_key(&number);
                state.entry(number).or_insert((kind, 0));
                is_new
            }
            Op::Remove(number) => state.remove(&number).is_some(),
            Op::Put(number, value) => match state.get_mut(&number) {
                Some((_, found)) => {
                    *found = value;
                    true
                }
                None => false,
            },
        })
    }

    fn observe(&self, pool: &Self::Handle) -> Outcome<State> {
        let mut state = State::new();
        for number in 0..self.names {
            if let Some(kind) = kind_of(pool, &name(number))? {
                state.insert(number, (kind, visit(pool, &name(number), kind, None)?));
            }
        }
        Ok(state)
    }

    fn op(&self, rng: &mut Rng) -> Op {
        let number = rng.below(self.names);
        match rng.below(8) {
            0..=2 => Op::Create(number, *rng.pick(&KINDS)),
            3..=4 => Op::Remove(number),
            _ => Op::Put(number, 1 + rng.below(1000)),
        }
    }

    fn check(&self, pool: &Self::Handle) -> Outcome {
        must_be_empty(pool.check()?.violations)
    }

    fn is_refused(&self, answer: &Answer<()>) -> bool {
        is_refused(answer)
    }
}
