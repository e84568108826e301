//! Memory that counts what is read of it, fails beyond a bound, and can be put back.

use std::borrow::Cow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use remanent_pmem::{Fault, Frozen, Medium, Result, WORD_LEN};

/// Memory of one thread.
#[derive(Debug)]
pub(crate) struct Memory {
    words: Vec<AtomicU64>,
    len: AtomicU64,
    /// Words that were read since [`Memory::bound`].
    steps: AtomicU64,
    steps_max: AtomicU64,
    /// What was overwritten since [`Memory::mark`], and where.
    overwritten: Mutex<Vec<(u64, u64)>>,
    fault: Mutex<Option<Fault>>,
}

impl Memory {
    pub(crate) fn new(len: u64) -> Self {
        Memory {
            words: (0..len / WORD_LEN).map(|_| AtomicU64::new(0)).collect(),
            len: AtomicU64::new(len),
            steps: AtomicU64::new(0),
            steps_max: AtomicU64::new(u64::MAX),
            overwritten: Mutex::default(),
            fault: Mutex::default(),
        }
    }

    /// Lets what follows read so many words.
    ///
    /// # Panics
    ///
    /// Not here: but whoever reads more does.
    pub(crate) fn bound(&self, steps: u64) {
        self.steps.store(0, Relaxed);
        self.steps_max.store(steps, Relaxed);
    }

    /// From here on, what is overwritten can be put back.
    pub(crate) fn mark(&self) {
        self.overwritten.lock().unwrap().clear();
    }

    /// Puts back what was overwritten.
    pub(crate) fn put_back(&self) {
        for (index, old) in self.overwritten.lock().unwrap().drain(..).rev() {
            self.words[index as usize].store(old, Relaxed);
        }
        *self.fault.lock().unwrap() = None;
    }

    /// Words that are not zero, from `offset` on.
    pub(crate) fn used(&self, offset: u64) -> Vec<u64> {
        let words = (offset..self.len()).step_by(WORD_LEN as usize);
        words.filter(|&at| self.words[(at / WORD_LEN) as usize].load(Relaxed) != 0).collect()
    }

    /// A word, uncounted.
    pub(crate) fn word(&self, offset: u64) -> u64 {
        self.words[(offset / WORD_LEN) as usize].load(Relaxed)
    }

    /// Overwrites a word from outside.
    pub(crate) fn damage(&self, offset: u64, word: u64) {
        self.replace(offset, |_| word);
    }

    fn step(&self) {
        let steps = self.steps.fetch_add(1, Relaxed);
        if steps >= self.steps_max.load(Relaxed) {
            // What is dropped on the way out may read as much as it likes.
            self.steps_max.store(u64::MAX, Relaxed);
            panic!("no end after {steps} steps");
        }
    }

    fn index(&self, offset: u64) -> Option<usize> {
        let index = offset / WORD_LEN;
        if index < self.words.len() as u64 {
            return Some(index as usize);
        }
        self.fault.lock().unwrap().get_or_insert(Fault::OutOfRange(offset));
        None
    }

    fn replace(&self, offset: u64, update: impl FnOnce(u64) -> u64) -> u64 {
        let Some(index) = self.index(offset) else { return 0 };
        let old = self.words[index].load(Relaxed);
        self.overwritten.lock().unwrap().push((index as u64, old));
        self.words[index].store(update(old), Relaxed);
        old
    }

    fn byte(&self, offset: u64) -> u8 {
        let word = self.index(offset).map_or(0, |index| self.words[index].load(Relaxed));
        word.to_le_bytes()[(offset % WORD_LEN) as usize]
    }
}

impl Medium for Memory {
    fn len(&self) -> u64 {
        self.len.load(Relaxed)
    }

    fn needs_flush(&self) -> bool {
        true
    }

    fn load(&self, offset: u64) -> u64 {
        self.step();
        self.index(offset).map_or(0, |index| self.words[index].load(Relaxed))
    }

    fn store(&self, offset: u64, value: u64) {
        self.replace(offset, |_| value);
    }

    fn compare_exchange(&self, offset: u64, current: u64, new: u64) -> Result<u64, u64> {
        match self.load(offset) {
            found if found == current => Ok(self.replace(offset, |_| new)),
            found => Err(found),
        }
    }

    fn compare_exchange_pair(
        &self,
        offset: u64,
        current: [u64; 2],
        new: [u64; 2],
    ) -> Result<[u64; 2], [u64; 2]> {
        let found = [self.load(offset), self.load(offset + WORD_LEN)];
        if found != current {
            return Err(found);
        }
        self.store(offset, new[0]);
        self.store(offset + WORD_LEN, new[1]);
        Ok(found)
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) {
        self.step();
        for (at, byte) in (offset..).zip(bytes) {
            *byte = self.byte(at);
        }
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        for (at, byte) in (offset..).zip(bytes) {
            let shift = at % WORD_LEN * 8;
            self.replace(at, |word| word & !(0xff << shift) | u64::from(*byte) << shift);
        }
    }

    fn write_streaming(&self, offset: u64, bytes: &[u8]) {
        self.write(offset, bytes);
    }

    fn write_zeros(&self, offset: u64, len: u64) {
        for at in (offset..offset + len).step_by(WORD_LEN as usize) {
            if self.index(at).is_some_and(|index| self.words[index].load(Relaxed) != 0) {
                self.store(at, 0);
            }
        }
    }

    fn view(&self, range: Frozen) -> Cow<'_, [u8]> {
        let mut bytes = vec![0; range.len() as usize];
        self.read(range.offset(), &mut bytes);
        Cow::Owned(bytes)
    }

    fn flush(&self, _: u64, _: u64) {}

    fn fence(&self) {}

    fn grow(&self, _: u64) -> Result<()> {
        Ok(())
    }

    fn release(&self, offset: u64, len: u64) -> bool {
        self.write_zeros(offset, len);
        true
    }

    fn pause(&self) {
        self.step();
    }

    fn thread(&self) -> u64 {
        0
    }

    fn fault(&self) -> Option<Fault> {
        *self.fault.lock().unwrap()
    }
}
