//! Sorted sets and strings of a server whose names become safe in batches, while members are durable at once.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use remanent_crashsim::{Outcome, Rng, Sim, Subject};
use remanent_server::BatchStore;

use super::sorted_sets::{Keys, Op, Opened, Value};

/// As [`Keys`], on the store that works in batches.
#[derive(Clone, Debug)]
pub(super) struct LaggingKeys(pub(super) Keys);

/// What the store says a key is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Name {
    String(u64),
    /// A set by its number, which no other has had.
    Sorted(u64),
}

type Names = BTreeMap<u64, Name>;

/// What is known of the keys, and which of it a crash may take back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Expected {
    now: Names,
    /// What the names may be after a crash, besides what they are.
    earlier: BTreeSet<Names>,
    /// Members and scores of the sets that have a name in one of them: these are never taken back.
    sets: BTreeMap<u64, BTreeMap<u64, i64>>,
    sets_made: u64,
}

/// What was seen, or what may be seen.
#[derive(Clone, Debug, Default)]
pub(super) enum Lagging {
    /// What is there from the start.
    #[default]
    Start,
    Seen {
        contents: BTreeMap<u64, Value>,
        is_start: bool,
    },
    Expected(Expected),
}

impl PartialEq for Lagging {
    /// What was seen equals all that it may be. Those that may be are compared as they are.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Lagging::Start, Lagging::Start) => true,
            (Lagging::Expected(one), Lagging::Expected(other)) => one == other,
            (Lagging::Seen { contents: one, .. }, Lagging::Seen { contents: other, .. }) => {
                one == other
            }
            (Lagging::Seen { is_start, .. }, Lagging::Start)
            | (Lagging::Start, Lagging::Seen { is_start, .. }) => *is_start,
            (Lagging::Seen { contents, .. }, Lagging::Expected(expected))
            | (Lagging::Expected(expected), Lagging::Seen { contents, .. }) => {
                expected.allows(contents)
            }
            (Lagging::Start, Lagging::Expected(_)) | (Lagging::Expected(_), Lagging::Start) => {
                false
            }
        }
    }
}

impl Eq for Lagging {}

impl Hash for Lagging {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Lagging::Start => {}
            Lagging::Seen { contents, .. } => contents.hash(state),
            Lagging::Expected(expected) => expected.hash(state),
        }
    }
}

impl Expected {
    fn new(contents: &BTreeMap<u64, Value>) -> Self {
        let mut expected = Expected::default();
        for (&key, value) in contents {
            let name = expected.name_of(value);
            expected.now.insert(key, name);
        }
        expected
    }

    /// The name of a new value.
    fn name_of(&mut self, value: &Value) -> Name {
        match value {
            Value::String(number) => Name::String(*number),
            Value::Sorted(members) => {
                self.sets_made += 1;
                self.sets.insert(self.sets_made, members.clone());
                Name::Sorted(self.sets_made)
            }
        }
    }

    fn contents(&self, names: &Names) -> BTreeMap<u64, Value> {
        let value = |name: &Name| match name {
            Name::String(number) => Value::String(*number),
            Name::Sorted(set) => Value::Sorted(self.sets[set].clone()),
        };
        names.iter().map(|(&key, name)| (key, value(name))).collect()
    }

    fn allows(&self, contents: &BTreeMap<u64, Value>) -> bool {
        self.earlier.iter().chain([&self.now]).any(|names| self.contents(names) == *contents)
    }

    /// All that was done is durable.
    fn sync(&mut self) {
        self.earlier.clear();
    }

    /// A key has got another value, or none.
    fn change(&mut self, key: u64, value: Option<&Value>, is_one_member: bool) {
        let before = self.now.get(&key).cloned();
        match (before, value) {
            (Some(Name::Sorted(set)), Some(Value::Sorted(members))) => {
                self.sets.insert(set, members.clone());
            }
            // A set that has lost its last member. Opening completes that whatever it finds besides.
            (Some(Name::Sorted(_)), None) if is_one_member => {
                self.earlier = self.earlier.iter().map(|names| without(names, key)).collect();
                self.now.remove(&key);
            }
            (_, Some(value @ Value::Sorted(_))) => {
                let name = self.name_of(value);
                // Opening completes this, too, where there is nothing under the name.
                let with_it = |names: &Names| {
                    let mut names = names.clone();
                    names.entry(key).or_insert_with(|| name.clone());
                    names
                };
                let completed: Vec<Names> = self.earlier.iter().map(with_it).collect();
                self.earlier.extend(completed);
                self.earlier.insert(self.now.clone());
                self.now.insert(key, name);
            }
            (_, Some(value)) => {
                let name = self.name_of(value);
                self.earlier.insert(self.now.clone());
                self.now.insert(key, name);
            }
            (_, None) => {
                self.earlier.insert(self.now.clone());
                self.now.remove(&key);
            }
        }
    }

    /// Forgets sets that no name can lead to any more.
    fn forget(&mut self) {
        let names = self.earlier.iter().chain([&self.now]);
        let named: BTreeSet<u64> = names
            .flat_map(BTreeMap::values)
            .filter_map(|name| match name {
                Name::Sorted(set) => Some(*set),
                Name::String(_) => None,
            })
            .collect();
        self.sets.retain(|set, _| named.contains(set));
        self.earlier.remove(&self.now);
    }
}

fn without(names: &Names, key: u64) -> Names {
    let mut names = names.clone();
    names.remove(&key);
    names
}

impl LaggingKeys {
    fn expected(&self, state: Lagging) -> Expected {
        match state {
            Lagging::Start => Expected::new(&self.0.base_contents()),
            Lagging::Seen { contents, .. } => Expected::new(&contents),
            Lagging::Expected(expected) => expected,
        }
    }
}

impl Subject for LaggingKeys {
    type Op = Op;
    type Ret = Vec<String>;
    type State = Lagging;
    type Handle = Opened<BatchStore<Arc<Sim>>>;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        self.0.create_in(medium)
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        self.0.open_in(medium)
    }

    fn apply(&self, opened: &Self::Handle, op: &Op) -> Vec<String> {
        self.0.apply_to(opened, op)
    }

    fn model(&self, state: &mut Lagging, op: &Op) -> Vec<String> {
        let mut expected = self.expected(std::mem::take(state));
        let before = expected.contents(&expected.now);
        let mut after = before.clone();
        let answer = self.0.run(&mut after, op);
        let is_one_member = !matches!(op, Op::Delete(_));
        for key in 0..self.0.keys {
            if after.get(&key) != before.get(&key) && !matches!(op, Op::Flush) {
                let replaces_set = matches!(before.get(&key), Some(Value::Sorted(_)))
                    && matches!(
                        (op, after.get(&key)),
                        (Op::Delete(_), _) | (_, Some(Value::String(_)))
                    );
                expected.change(key, after.get(&key), is_one_member);
                // Where nobody else removes the members, the command does, when its change is safe.
                if replaces_set && !self.0.sweeps {
                    expected.sync();
                }
            }
        }
        match op {
            Op::Flush => {
                expected = Expected { sets_made: expected.sets_made, ..Expected::default() }
            }
            Op::Sync => expected.sync(),
            _ => {}
        }
        expected.forget();
        *state = Lagging::Expected(expected);
        answer
    }

    fn observe(&self, opened: &Self::Handle) -> Outcome<Lagging> {
        let contents = self.0.observe_in(opened)?;
        let is_start = contents == self.0.base_contents();
        Ok(Lagging::Seen { contents, is_start })
    }

    fn op(&self, rng: &mut Rng) -> Op {
        if rng.below(6) == 0 { Op::Sync } else { self.0.op(rng) }
    }

    fn check(&self, opened: &Self::Handle) -> Outcome {
        self.0.check_in(opened)
    }

    fn is_refused(&self, answer: &Vec<String>) -> bool {
        self.0.is_refused(answer)
    }
}
