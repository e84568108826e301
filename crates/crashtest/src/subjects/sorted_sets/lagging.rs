//! Sorted sets and strings of a server whose names become safe in batches, while members are
//! durable at once.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use remanent_crashsim::{Outcome, Rng, Sim, Steps, Subject};
use remanent_server::BatchStore;

use super::subject::{Keys, Op, Opened, Value};

/// Like [`Keys`], on the store that works in batches.
#[derive(Clone, Debug)]
pub(super) struct LaggingKeys(pub(super) Keys);

/// A command of a client.
#[derive(Clone, Debug)]
pub(super) enum Command {
    Whole(Op),
    /// The intent is written: opening completes it, and the client has no answer yet.
    Intended(Op),
}

/// The store's entry for a key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Name {
    String(u64),
    /// A set by its number, which no other set ever had.
    Sorted(u64),
}

type Names = BTreeMap<u64, Name>;

/// The expected content of the keys, and which part of it a crash may undo.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Expected {
    now: Names,
    /// The names that are possible after a crash, besides the present ones.
    earlier: BTreeSet<Names>,
    /// The names that are possible while a command with a written intent is under way.
    intended: BTreeSet<Names>,
    /// Members and scores of the sets with a name in one of these. They are never undone.
    sets: BTreeMap<u64, BTreeMap<u64, i64>>,
    sets_made: u64,
    /// Whether a set waits for the sweeper.
    is_waiting: bool,
    /// Whether there are members of a deleted set.
    has_nameless: bool,
}

/// An observed state, or the possible states.
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
    /// An observed state equals a set of possible states if it is one of them. Two sets of possible
    /// states are compared as sets.
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
        let mut names = self.earlier.iter().chain(&self.intended).chain([&self.now]);
        names.any(|names| self.contents(names) == *contents)
    }

    /// Notes that everything is durable.
    fn sync(&mut self) {
        self.earlier.clear();
    }

    /// Notes that a key has another value, or none.
    fn change(&mut self, key: u64, value: Option<&Value>) {
        match (self.now.get(&key).cloned(), value) {
            (Some(Name::Sorted(set)), Some(Value::Sorted(members))) => {
                self.sets.insert(set, members.clone());
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

    /// Notes the intent to give a key another value: opening does that, whatever names it finds
    /// besides.
    fn intend(&mut self, key: u64, value: Option<&Value>) {
        let present = self.now.get(&key).cloned();
        let set = match (&present, value) {
            // No name changes.
            (Some(Name::Sorted(_)), Some(_)) => return,
            (_, Some(value)) => Some(self.name_of(value)),
            (_, None) => None,
        };
        let completed = |names: &Names| {
            let mut names = names.clone();
            match &set {
                // A key with a name keeps it.
                Some(set) => drop(names.entry(key).or_insert_with(|| set.clone())),
                None if names.get(&key) == present.as_ref() => drop(names.remove(&key)),
                None => {}
            }
            names
        };
        let found = self.earlier.iter().chain([&self.now]);
        self.intended = found.map(completed).collect();
    }

    /// Drops sets that no name can lead to any more.
    fn forget(&mut self) {
        let names = self.earlier.iter().chain(&self.intended).chain([&self.now]);
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

impl LaggingKeys {
    fn expected(&self, state: Lagging) -> Expected {
        match state {
            Lagging::Start => Expected::new(&self.0.base_contents()),
            Lagging::Seen { contents, .. } => Expected::new(&contents),
            Lagging::Expected(expected) => expected,
        }
    }

    /// Notes that everything is made durable before the members of a set are removed. A command
    /// that removes the last member does this; and so does one that replaces a set, if there is no
    /// sweeper.
    fn note_removed(
        &self,
        expected: &mut Expected,
        op: &Op,
        before: Option<&Value>,
        after: Option<&Value>,
    ) {
        let is_gone =
            matches!(before, Some(Value::Sorted(_))) && !matches!(after, Some(Value::Sorted(_)));
        let is_replaced = matches!(op, Op::Delete(_)) || after.is_some();
        if is_gone && is_replaced && self.0.sweeps {
            (expected.is_waiting, expected.has_nameless) = (true, true);
        } else if is_gone {
            expected.sync();
        }
    }
}

impl Subject for LaggingKeys {
    type Op = Command;
    type Ret = Vec<String>;
    type State = Lagging;
    type Handle = Opened<BatchStore<Arc<Sim>>>;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        self.0.create_in(medium)
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        self.0.open_in(medium)
    }

    fn apply(&self, opened: &Self::Handle, command: &Command) -> Vec<String> {
        match command {
            Command::Whole(op) => self.0.apply_to(opened, op),
            Command::Intended(op) => unreachable!("{op:?} is no command of a client"),
        }
    }

    fn model(&self, state: &mut Lagging, command: &Command) -> Vec<String> {
        let mut expected = self.expected(std::mem::take(state));
        expected.intended.clear();
        let before = expected.contents(&expected.now);
        let mut after = before.clone();
        let (Command::Whole(op) | Command::Intended(op)) = command;
        let answer = self.0.run(&mut after, op);
        let changed = (0..self.0.keys).filter(|key| after.get(key) != before.get(key));
        match (command, op) {
            (Command::Intended(_), _) => {
                changed.for_each(|key| expected.intend(key, after.get(&key)));
            }
            (_, Op::Flush) => {
                expected = Expected { sets_made: expected.sets_made, ..Expected::default() }
            }
            _ => {
                for key in changed {
                    expected.change(key, after.get(&key));
                    self.note_removed(&mut expected, op, before.get(&key), after.get(&key));
                }
            }
        }
        match op {
            Op::Sync => expected.sync(),
            // Before the members of sets are removed, the removal of their names is durable.
            Op::SweepGone if expected.is_waiting => {
                expected.sync();
                (expected.is_waiting, expected.has_nameless) = (false, false);
            }
            Op::SweepAll if expected.has_nameless => {
                expected.sync();
                expected.has_nameless = false;
            }
            _ => {}
        }
        expected.forget();
        *state = Lagging::Expected(expected);
        answer
    }

    /// A change of members is written as an intent first.
    fn steps(&self, command: &Command) -> Steps<Command> {
        let Command::Whole(op) = command else { return Steps::One };
        match op {
            Op::Add(..)
            | Op::Remove(..)
            | Op::Increment(..)
            | Op::PopLeast(_)
            | Op::PopGreatest(_) => {
                Steps::InOrder(vec![Command::Intended(op.clone()), Command::Whole(op.clone())])
            }
            _ => Steps::One,
        }
    }

    fn observe(&self, opened: &Self::Handle) -> Outcome<Lagging> {
        let contents = self.0.observe_in(opened)?;
        let is_start = contents == self.0.base_contents();
        Ok(Lagging::Seen { contents, is_start })
    }

    fn op(&self, rng: &mut Rng) -> Command {
        Command::Whole(if rng.below(6) == 0 { Op::Sync } else { self.0.op(rng) })
    }

    fn check(&self, opened: &Self::Handle) -> Outcome {
        self.0.check_in(opened)
    }

    fn is_refused(&self, answer: &Vec<String>) -> bool {
        self.0.is_refused(answer)
    }
}
