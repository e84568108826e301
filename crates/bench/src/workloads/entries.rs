//! Entries of which one in ten has a key that no earlier one had, as in the paper's evaluation.

use super::keys::{BenchKey, mix};
use crate::peers::Answer;

/// Entries for each key, on average: the paper's distinctivity of 10 %.
const ENTRIES_PER_KEY: usize = 10;

/// What a thread does with a map of several entries a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step<K> {
    /// Adds an entry.
    Insert(K, u64),
    /// Finds all entries of a key.
    Search(K),
    /// Removes an entry.
    Remove(K, u64),
}

/// A map's first content: entries numbered from 0, each with its number for a value.
pub(crate) struct Entries {
    count: usize,
    /// What a search for each key finds.
    by_key: Vec<Answer>,
}

impl Entries {
    /// So many entries.
    pub(crate) fn new(count: usize) -> Self {
        let mut entries =
            Entries { count, by_key: vec![Answer::default(); (count / ENTRIES_PER_KEY).max(1)] };
        for number in 0..count as u64 {
            let key = entries.key_number(number);
            entries.by_key[key] = entries.by_key[key].plus(Answer { done: 1, sum: number });
        }
        entries
    }

    fn key_number(&self, number: u64) -> usize {
        (mix(number) % self.by_key.len() as u64) as usize
    }

    /// The key of an entry, also of one that is added later.
    fn key<K: BenchKey>(&self, number: u64) -> K {
        K::from_number(self.key_number(number) as u64)
    }

    /// The entry that a step searches for: each is as likely as any other.
    fn searched(&self, step: u64) -> u64 {
        mix(!step) % self.count as u64
    }

    /// Inserts all of them.
    pub(crate) fn inserts<K: BenchKey>(&self) -> Vec<Step<K>> {
        (0..self.count as u64).map(|number| Step::Insert(self.key(number), number)).collect()
    }

    /// `count` searches for keys that are there, and what they find together.
    pub(crate) fn searches<K: BenchKey>(&self, count: usize) -> (Vec<Step<K>>, Answer) {
        let numbers = (0..count as u64).map(|step| self.searched(step));
        let found = numbers.clone().map(|number| self.by_key[self.key_number(number)]);
        let found = found.fold(Answer::default(), Answer::plus);
        (numbers.map(|number| Step::Search(self.key(number))).collect(), found)
    }

    /// A search for every key, and what they find together: all there is.
    pub(crate) fn audit<K: BenchKey>(&self) -> (Vec<Step<K>>, Answer) {
        let keys = 0..self.by_key.len() as u64;
        let found = self.by_key.iter().copied().fold(Answer::default(), Answer::plus);
        (keys.map(|key| Step::Search(K::from_number(key))).collect(), found)
    }

    /// `count` steps of which `writes` percent insert new entries and the others search.
    pub(crate) fn mixed<K: BenchKey>(&self, count: usize, writes: u64) -> Mixed<K> {
        let is_write = |step: u64| mix(step ^ writes << 32) % 100 < writes;
        let mut mixed = Mixed { steps: Vec::new(), undo: Vec::new(), found_min: 0, found_max: 0 };
        let mut added = vec![0; self.by_key.len()];
        for (step, number) in (0..count as u64).zip(self.count as u64..) {
            if is_write(step) {
                let key = self.key(number);
                mixed.steps.push(Step::Insert(key, number));
                mixed.undo.push(Step::Remove(key, number));
                added[self.key_number(number)] += 1;
            } else {
                mixed.steps.push(Step::Search(self.key(self.searched(step))));
            }
        }
        for step in (0..count as u64).filter(|&step| !is_write(step)) {
            let key = self.key_number(self.searched(step));
            mixed.found_min += self.by_key[key].done;
            mixed.found_max += self.by_key[key].done + added[key];
        }
        mixed
    }
}

/// Searches and inserts in one sequence.
pub(crate) struct Mixed<K> {
    /// The steps, to be shared out over threads.
    pub(crate) steps: Vec<Step<K>>,
    /// Removes what they inserted.
    pub(crate) undo: Vec<Step<K>>,
    found_min: u64,
    found_max: u64,
}

impl<K> Mixed<K> {
    /// Whether searches may have found so many entries: each at least those of before, at most
    /// those of afterwards.
    pub(crate) fn allows(&self, found: u64) -> bool {
        (self.found_min..=self.found_max).contains(&found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Takes the steps on a map of the standard library.
    fn run(map: &mut HashMap<u64, Vec<u64>>, steps: &[Step<u64>]) -> Answer {
        let mut answer = Answer::default();
        for step in steps {
            match *step {
                Step::Insert(key, value) => map.entry(key).or_default().push(value),
                Step::Search(key) => {
                    let values = map.get(&key).into_iter().flatten();
                    answer =
                        values.fold(answer, |sum, &value| sum.plus(Answer { done: 1, sum: value }));
                }
                Step::Remove(key, value) => {
                    map.get_mut(&key).expect("it has entries").retain(|found| *found != value);
                }
            }
        }
        answer
    }

    #[test]
    fn what_is_to_be_found_is_what_a_map_finds() {
        let entries = Entries::new(1000);
        let mut map = HashMap::new();
        run(&mut map, &entries.inserts());
        assert!(map.len() > 90 && map.len() <= 100, "one key in ten is new: {}", map.len());
        let (searches, expected) = entries.searches(500);
        assert_eq!(run(&mut map, &searches), expected);
        let (audit, expected) = entries.audit();
        assert_eq!(run(&mut map, &audit), expected);
        assert_eq!(expected.done, 1000);
    }

    #[test]
    fn a_mix_has_its_share_of_writes_and_can_be_undone() {
        let entries = Entries::new(1000);
        for writes in [0, 30, 100] {
            let mut map = HashMap::new();
            run(&mut map, &entries.inserts());
            let mixed = entries.mixed(2000, writes);
            assert!(mixed.undo.len().abs_diff(20 * writes as usize) < 100, "{}", mixed.undo.len());
            let found = run(&mut map, &mixed.steps).done;
            assert!(mixed.allows(found) && !mixed.allows(mixed.found_max + 1), "{found}");
            run(&mut map, &mixed.undo);
            let (audit, expected) = entries.audit();
            assert_eq!(run(&mut map, &audit), expected);
        }
    }
}
