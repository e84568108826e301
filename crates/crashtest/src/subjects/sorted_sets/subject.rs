//! Sorted sets and strings of a server, by the commands that clients send.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use remanent_crashsim::{Outcome, Rng, Sim, Subject};
use remanent_pmem::Pool;
use remanent_pmem::pool::Format;
use remanent_server::resp::encode_request;
use remanent_server::store::Form;
use remanent_server::store::{Change, StoreError};
use remanent_server::{BatchStore, Config, Keyspace, MapStore, Progress, Session, Shared, Store};
use remanent_structures::{BatchOptions, BlinkTree};

use crate::pools::must_be_empty;

/// Few keys with few members, used by one or several clients.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    pub(super) keys: u64,
    pub(super) members: u64,
    /// Members of each set at the start.
    pub(super) base: u64,
    pub(super) mix: Mix,
    /// Size beyond which the pool does not grow.
    pub(super) size_max: u64,
    /// Bytes of a member besides its identification.
    pub(super) padding: usize,
    /// Whether a crash has left members of a set under each name, and clients leave more.
    pub(super) sweeps: bool,
}

/// The commands that occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mix {
    /// All.
    All,
    /// Those that change members of sets.
    Members,
    /// Those that delete whole sets, and create new ones.
    Names,
    /// Like [`Names`](Mix::Names), with a sweeper.
    Sweep,
}

/// One command.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Add(u64, Vec<(u64, i64)>),
    Remove(u64, Vec<u64>),
    Increment(u64, u64, i64),
    PopLeast(u64),
    PopGreatest(u64),
    Range(u64),
    Set(u64, u64),
    SetIfMissing(u64, u64),
    Exists(u64),
    Delete(u64),
    Flush,
    /// Removes the members of sets that clients have deleted.
    SweepGone,
    /// Removes the members of all sets without a name.
    SweepAll,
    /// Waits until everything is durable.
    Sync,
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Value {
    String(u64),
    /// Members and scores, which are whole numbers here.
    Sorted(BTreeMap<u64, i64>),
}

/// The observable state; `None` is the state from the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Contents(Option<BTreeMap<u64, Value>>);

/// A server without sockets, and its pool.
pub(super) struct Opened<S: Store> {
    shared: Arc<Shared<S>>,
    pool: Pool<Arc<Sim>>,
}

/// A store in a simulated pool.
pub(super) trait Simulated: Store<Tree = BlinkTree<[u8], [u8], Arc<Sim>>> + Sized {
    fn in_pool(pool: &Pool<Arc<Sim>>) -> Outcome<Self>;
}

impl Simulated for MapStore<Arc<Sim>> {
    fn in_pool(pool: &Pool<Arc<Sim>>) -> Outcome<Self> {
        Ok(MapStore::open(pool)?)
    }
}

impl Simulated for BatchStore<Arc<Sim>> {
    /// Without a thread, because the simulator's threads are the only ones.
    fn in_pool(pool: &Pool<Arc<Sim>>) -> Outcome<Self> {
        let options = BatchOptions { segment_len: 64 << 10, ..BatchOptions::without_thread() };
        Ok(BatchStore::open(pool, options)?)
    }
}

const OK: &str = "+OK";
const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

impl<S: Simulated> Opened<S> {
    fn new(pool: Pool<Arc<Sim>>) -> Outcome<Self> {
        let keys = Keyspace::open(S::in_pool(&pool)?)?;
        Ok(Opened { shared: Arc::new(Shared::new(keys, Config::default())), pool })
    }

    /// Sends a command. Returns the lines of the answer, without those with a length.
    fn call(&self, words: &[String]) -> Vec<String> {
        let address = "127.0.0.1:6380".parse().expect("an address");
        let mut session = Session::new(Arc::clone(&self.shared), address, address);
        encode_request(session.input(), words);
        if session.run() == Progress::Long {
            session.run_long();
        }
        let answer = String::from_utf8_lossy(session.output()).into_owned();
        let lines = answer.split_terminator("\r\n").filter(|line| !line.starts_with(['$', '*']));
        lines.map(str::to_owned).collect()
    }
}

impl Keys {
    fn member(&self, member: u64) -> String {
        format!("{member}{}", "-".repeat(self.padding))
    }

    fn member_number(member: &str) -> Option<u64> {
        member.trim_end_matches('-').parse().ok()
    }

    pub(super) fn base_contents(&self) -> BTreeMap<u64, Value> {
        let members = || (0..self.base).map(|member| (member, member as i64)).collect();
        let keys = 0..if self.base == 0 { 0 } else { self.keys };
        keys.map(|key| (key, Value::Sorted(members()))).collect()
    }

    fn words(&self, op: &Op) -> Vec<String> {
        let text = |word: &str| word.to_owned();
        let key = |key: &u64| format!("key{key}");
        match op {
            Op::Add(name, pairs) => {
                let pairs = pairs.iter().flat_map(|(m, s)| [s.to_string(), self.member(*m)]);
                [text("ZADD"), key(name)].into_iter().chain(pairs).collect()
            }
            Op::Remove(name, members) => {
                let members = members.iter().map(|member| self.member(*member));
                [text("ZREM"), key(name)].into_iter().chain(members).collect()
            }
            Op::Increment(name, member, by) => {
                vec![text("ZINCRBY"), key(name), by.to_string(), self.member(*member)]
            }
            Op::PopLeast(name) => vec![text("ZPOPMIN"), key(name)],
            Op::PopGreatest(name) => vec![text("ZPOPMAX"), key(name)],
            Op::Range(name) => {
                vec![text("ZRANGE"), key(name), text("0"), text("-1"), text("WITHSCORES")]
            }
            Op::Set(name, value) => vec![text("SET"), key(name), value.to_string()],
            Op::SetIfMissing(name, value) => vec![text("SETNX"), key(name), value.to_string()],
            Op::Exists(name) => vec![text("EXISTS"), key(name)],
            Op::Delete(name) => vec![text("DEL"), key(name)],
            Op::Flush => vec![text("FLUSHALL")],
            Op::Sync => ["WAITAOF", "1", "0", "0"].map(text).to_vec(),
            Op::SweepGone | Op::SweepAll => unreachable!("no client asks for it"),
        }
    }

    /// Applies a command to the contents, and returns the server's expected answer.
    pub(super) fn run(&self, contents: &mut BTreeMap<u64, Value>, op: &Op) -> Vec<String> {
        let one = |line: String| vec![line];
        let (Op::Add(key, _)
        | Op::Remove(key, _)
        | Op::Increment(key, ..)
        | Op::PopLeast(key)
        | Op::PopGreatest(key)
        | Op::Range(key)) = op
        else {
            return match op {
                Op::Set(key, value) => {
                    contents.insert(*key, Value::String(*value));
                    one(OK.to_owned())
                }
                Op::SetIfMissing(key, value) => {
                    let is_missing = !contents.contains_key(key);
                    contents.entry(*key).or_insert(Value::String(*value));
                    one(format!(":{}", u8::from(is_missing)))
                }
                Op::Exists(key) => one(format!(":{}", u8::from(contents.contains_key(key)))),
                Op::Delete(key) => one(format!(":{}", u8::from(contents.remove(key).is_some()))),
                Op::SweepGone | Op::SweepAll => Vec::new(),
                Op::Sync => [":1", ":0"].map(str::to_owned).to_vec(),
                _ => {
                    contents.clear();
                    one(OK.to_owned())
                }
            };
        };
        let value = contents.entry(*key).or_insert_with(|| Value::Sorted(BTreeMap::new()));
        let Value::Sorted(set) = value else { return one(WRONG_TYPE.to_owned()) };
        let answer = self.run_on_set(set, op);
        if set.is_empty() {
            contents.remove(key);
        }
        answer
    }

    fn run_on_set(&self, set: &mut BTreeMap<u64, i64>, op: &Op) -> Vec<String> {
        let pair = |(member, score): (u64, i64)| [self.member(member), score.to_string()];
        let mut in_order: Vec<(u64, i64)> = set.iter().map(|(&m, &s)| (m, s)).collect();
        in_order.sort_by_key(|&(member, score)| (score, self.member(member)));
        let mut pop = |popped: Option<(u64, i64)>| {
            popped.map_or(Vec::new(), |(member, score)| {
                set.remove(&member);
                pair((member, score)).to_vec()
            })
        };
        match op {
            Op::PopLeast(_) => pop(in_order.first().copied()),
            Op::PopGreatest(_) => pop(in_order.last().copied()),
            Op::Add(_, pairs) => {
                let before = set.len();
                set.extend(pairs.iter().copied());
                vec![format!(":{}", set.len() - before)]
            }
            Op::Remove(_, members) => {
                let count = members.iter().filter(|member| set.remove(member).is_some()).count();
                vec![format!(":{count}")]
            }
            Op::Increment(_, member, by) => {
                let score = set.entry(*member).or_default();
                *score += by;
                vec![score.to_string()]
            }
            _ => in_order.into_iter().flat_map(pair).collect(),
        }
    }
}

/// Common to both kinds of stores.
impl Keys {
    pub(super) fn create_in<S: Simulated>(&self, medium: Arc<Sim>) -> Outcome<Opened<S>> {
        let pool = Pool::format(medium, &Format::new(self.size_max))?;
        let opened = Opened::<S>::new(pool)?;
        let keys = opened.shared.keys();
        for key in 0..if self.sweeps { self.keys } else { 0 } {
            opened.call(&self.words(&Op::Add(key, vec![(0, 0), (1, 1)])));
            // As after a crash: the set has lost its name.
            let name = format!("key{key}");
            keys.store().modify(name.as_bytes(), |_| (Change::<&[u8]>::Remove, ()))?;
        }
        for (key, value) in self.base_contents() {
            if let Value::Sorted(members) = value {
                let added = opened.call(&self.words(&Op::Add(key, members.into_iter().collect())));
                if added != [format!(":{}", self.base)] {
                    return Err(
                        format!("the members that are there from the start: {added:?}").into()
                    );
                }
            }
        }
        keys.store().sync()?;
        self.begin(opened)
    }

    pub(super) fn open_in<S: Simulated>(&self, medium: Arc<Sim>) -> Outcome<Opened<S>> {
        let pool = Pool::recover(medium)?;
        let is_whole = Form::of(&pool)?.is_some();
        match Opened::new(pool) {
            Ok(opened) => self.begin(opened),
            Err(error) => {
                let full = error.downcast_ref() == Some(&StoreError::Full);
                assert!(!is_whole || full, "the keys do not open: {error}");
                Err(error)
            }
        }
    }

    fn begin<S: Simulated>(&self, opened: Opened<S>) -> Outcome<Opened<S>> {
        if self.sweeps {
            opened.shared.keys().defer_sweeping();
        }
        Ok(opened)
    }

    pub(super) fn apply_to<S: Simulated>(&self, opened: &Opened<S>, op: &Op) -> Vec<String> {
        let keys = opened.shared.keys();
        let swept = match op {
            Op::SweepGone => keys.sweep_gone(|| false),
            Op::SweepAll => keys.sweep(|| false).map(drop),
            _ => return opened.call(&self.words(op)),
        };
        match swept {
            Ok(()) => Vec::new(),
            Err(error) => vec![error.to_string()],
        }
    }

    pub(super) fn observe_in<S: Simulated>(
        &self,
        opened: &Opened<S>,
    ) -> Outcome<BTreeMap<u64, Value>> {
        let mut contents = BTreeMap::new();
        for key in 0..self.keys {
            let name = format!("key{key}");
            let of_type = opened.call(&["TYPE".to_owned(), name.clone()]);
            let value = match of_type[0].as_str() {
                "+none" => continue,
                "+string" => {
                    let found = opened.call(&["GET".to_owned(), name]);
                    Value::String(found[0].parse()?)
                }
                _ => {
                    let found = opened.call(&self.words(&Op::Range(key)));
                    let pairs = found.chunks_exact(2).map(|pair| {
                        let member = Keys::member_number(&pair[0]).ok_or("no member of ours")?;
                        Ok((member, pair[1].parse()?))
                    });
                    Value::Sorted(pairs.collect::<Outcome<_>>()?)
                }
            };
            contents.insert(key, value);
        }
        let count = opened.call(&["DBSIZE".to_owned()]);
        if count[0] != format!(":{}", contents.len()) {
            return Err(format!("{} keys by count, {} found", count[0], contents.len()).into());
        }
        Ok(contents)
    }

    pub(super) fn check_in<S: Simulated>(&self, opened: &Opened<S>) -> Outcome {
        let keys = opened.shared.keys();
        let wrong = keys.check()?;
        if !wrong.is_empty() {
            return Err(wrong.join("; ").into());
        }
        // Everything that a crash has left of deleted sets is found.
        keys.sweep(|| false)?;
        if let Some(tree) = keys.store().tree() {
            let expected: usize = self
                .observe_in(opened)?
                .values()
                .map(|value| match value {
                    Value::String(_) => 0,
                    Value::Sorted(members) => 1 + 2 * members.len(),
                })
                .sum();
            // Each shard may have its last change.
            let mut len = 0;
            tree.ascend(.., |key: &[u8], _| {
                len += usize::from(!key.starts_with(b"\0\0\0\0\0\0\0\0\x01"));
                ControlFlow::Continue(())
            })?;
            // The note of the used numbers exists, unless all keys are gone.
            if len != expected && len != expected + 1 {
                return Err(format!("{len} entries in the tree, and {expected} expected").into());
            }
            must_be_empty(BlinkTree::check(tree)?)?;
        }
        must_be_empty(opened.pool.check()?.violations)
    }
}

impl Subject for Keys {
    type Op = Op;
    type Ret = Vec<String>;
    type State = Contents;
    type Handle = Opened<MapStore<Arc<Sim>>>;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        self.create_in(medium)
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        self.open_in(medium)
    }

    fn apply(&self, opened: &Self::Handle, op: &Op) -> Vec<String> {
        self.apply_to(opened, op)
    }

    fn model(&self, state: &mut Contents, op: &Op) -> Vec<String> {
        let mut contents = state.0.take().unwrap_or_else(|| self.base_contents());
        let answer = self.run(&mut contents, op);
        state.0 = (contents != self.base_contents()).then_some(contents);
        answer
    }

    fn observe(&self, opened: &Self::Handle) -> Outcome<Contents> {
        let contents = self.observe_in(opened)?;
        let is_base = contents == self.base_contents();
        Ok(Contents((!is_base).then_some(contents)))
    }

    fn op(&self, rng: &mut Rng) -> Op {
        let key = rng.below(self.keys);
        let member = rng.below(self.members);
        let score = rng.below(7) as i64 - 3;
        let several = |rng: &mut Rng| (0..=rng.below(3)).map(|_| rng.below(self.members)).collect();
        let kinds: &[u64] = match self.mix {
            Mix::All => &[0, 0, 0, 1, 1, 2, 2, 3, 4, 5, 6, 7, 8],
            Mix::Members => &[0, 0, 0, 1, 1, 2, 2, 3, 4, 5],
            Mix::Names => &[0, 0, 1, 3, 6, 7, 7, 9, 9, 10],
            Mix::Sweep => &[0, 1, 3, 6, 7, 7, 7, 8, 9, 11, 11, 12],
        };
        match *rng.pick(kinds) {
            0 => {
                let members: Vec<u64> = several(rng);
                let pairs = members.into_iter().map(|member| (member, rng.below(7) as i64 - 3));
                Op::Add(key, pairs.collect())
            }
            1 => Op::Remove(key, several(rng)),
            2 => Op::Increment(key, member, score),
            3 => Op::PopLeast(key),
            4 => Op::PopGreatest(key),
            5 => Op::Range(key),
            6 => Op::Set(key, rng.below(9)),
            7 => Op::Delete(key),
            9 => Op::SetIfMissing(key, rng.below(9)),
            10 => Op::Exists(key),
            11 => Op::SweepGone,
            12 => Op::SweepAll,
            _ => Op::Flush,
        }
    }

    fn check(&self, opened: &Self::Handle) -> Outcome {
        self.check_in(opened)
    }

    fn is_refused(&self, answer: &Vec<String>) -> bool {
        answer.iter().any(|line| line.starts_with("-OOM"))
    }
}
