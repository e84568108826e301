//! A store of small entries: the operations of every contender, and the modes in which they are
//! compared.
//!
//! A rival is opened to commit in one of three ways ([`Commit`]). Its guarantee also depends on
//! when it is told to sync, which [`Batched`] does by the clock and by bytes. A [`Mode`] combines
//! both, so that rows of one mode have guarantees as similar as their stores allow.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::report::{Ground, backing_of};

/// Bytes of each value.
pub(crate) const VALUE_LEN: usize = 100;
/// Maximal bytes of values in a batched store that are not yet on their way to the medium.
pub(crate) const LAG_LEN: usize = 1 << 20;
/// Maximal time from the return of a put of a batched store until the put is on its way to the
/// medium.
pub(crate) const LAG_TIME: Duration = Duration::from_millis(10);

/// A store under test, used by one thread.
pub(crate) trait Store {
    /// Sets the value of a key.
    ///
    /// # Errors
    ///
    /// Where the store reports one.
    fn put(&mut self, key: u64, value: &[u8]) -> Result<()>;

    /// Writes the value of a key into `value`, and says whether there is one. Puts of a transaction
    /// that is not committed yet need not be seen.
    ///
    /// # Errors
    ///
    /// Where the store reports one.
    fn get(&mut self, key: u64, value: &mut Vec<u8>) -> Result<bool>;

    /// Returns when every put so far survives power loss.
    ///
    /// # Errors
    ///
    /// Where the store reports one.
    fn sync(&mut self) -> Result<()>;

    /// The lag so far of a store that acknowledges at once.
    fn lag(&self) -> Lag {
        Lag::default()
    }
}

/// Statistics of acknowledging at once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lag {
    /// Total time that puts have waited because a bound was reached; `None` if unknown.
    pub(crate) waited: Option<Duration>,
    /// The longest time from the return of a put until it was durable.
    pub(crate) longest: Duration,
}

/// How a rival commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Commit {
    /// Each put is a transaction that is durable when it returns.
    Each = 0,
    /// Each put is a transaction that becomes durable later, at the latest when `sync` returns.
    Unsynced = 1,
    /// Puts are gathered in a transaction until `sync` commits it.
    Grouped = 2,
}

/// When a [`Batched`] store syncs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Before one more value would exceed so many bytes.
    len: usize,
    /// When the oldest put has waited so long.
    time: Option<Duration>,
}

/// The modes in which rivals are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// A put is durable when it returns.
    CommitEach,
    /// The rival's own way to acknowledge at once, and a sync within both bounds.
    Batched,
    /// A transaction that is kept open, and committed within both bounds.
    GroupOfTime,
    /// A transaction of as many puts as the bound of bytes holds, however long they take.
    GroupOfPuts,
}

impl Mode {
    /// All, the strongest guarantee first.
    pub(crate) const ALL: [Mode; 4] =
        [Mode::CommitEach, Mode::Batched, Mode::GroupOfTime, Mode::GroupOfPuts];

    /// Name of the mode in rows.
    pub(crate) fn name(self) -> String {
        match self {
            Mode::CommitEach => "commit each".to_owned(),
            Mode::Batched => "batched".to_owned(),
            Mode::GroupOfTime => format!("group of {} ms", LAG_TIME.as_millis()),
            Mode::GroupOfPuts => format!("group of {} puts", LAG_LEN / VALUE_LEN),
        }
    }

    fn commit(self) -> Commit {
        match self {
            Mode::CommitEach => Commit::Each,
            Mode::Batched => Commit::Unsynced,
            Mode::GroupOfTime | Mode::GroupOfPuts => Commit::Grouped,
        }
    }

    fn bounds(self) -> Option<Bounds> {
        match self {
            Mode::CommitEach => None,
            Mode::Batched | Mode::GroupOfTime => {
                Some(Bounds { len: LAG_LEN, time: Some(LAG_TIME) })
            }
            Mode::GroupOfPuts => Some(Bounds { len: LAG_LEN, time: None }),
        }
    }
}

/// A store of another project.
pub(crate) struct Rival {
    /// Name of the rival in rows.
    pub(crate) name: &'static str,
    /// Opens it in an existing directory, with its earlier content.
    pub(super) open: fn(&Path, Commit) -> Result<Box<dyn Store>>,
    /// How it commits in this way, and what a crash then undoes.
    pub(super) terms: fn(Commit) -> &'static str,
    /// Whether it is consistent after a power loss if commits were not synced.
    pub(super) is_whole_unsynced: bool,
    /// Whether it keeps the bounds of [`Mode::Batched`] by itself.
    pub(super) keeps_bounds: bool,
}

impl Rival {
    /// Opens it in an existing directory for `mode`.
    ///
    /// # Errors
    ///
    /// The error of a rival that cannot be opened.
    pub(crate) fn open(&self, directory: &Path, mode: Mode) -> Result<Box<dyn Store>> {
        let store = (self.open)(directory, mode.commit())
            .with_context(|| format!("cannot open {} in {}", self.name, directory.display()))?;
        Ok(match mode.bounds() {
            Some(_) if mode == Mode::Batched && self.keeps_bounds => store,
            Some(bounds) => Box::new(Batched::new(store, bounds)),
            None => store,
        })
    }

    /// Its guarantee in `directory`, for `mode`.
    ///
    /// # Errors
    ///
    /// When there is no such directory.
    pub(crate) fn ground(&self, directory: &Path, mode: Mode) -> Result<Ground> {
        let backing = backing_of(directory)?;
        let is_broken_by_power = mode == Mode::Batched && !self.is_whole_unsynced;
        let class = if backing == "file" && !is_broken_by_power { "power" } else { "process" };
        let durability = match mode {
            Mode::Batched | Mode::GroupOfTime => format!("{class}, batched"),
            Mode::CommitEach | Mode::GroupOfPuts => class.to_owned(),
        };
        Ok(Ground::new(backing, &durability, "none", &self.promise(mode)))
    }

    /// What an acknowledged put survives, in words.
    fn promise(&self, mode: Mode) -> String {
        let terms = (self.terms)(mode.commit());
        let both = format!("{} ms or {} MiB of values", LAG_TIME.as_millis(), LAG_LEN >> 20);
        let promise = match mode {
            Mode::CommitEach => "each put survives power loss when it returns".to_owned(),
            Mode::Batched => format!("each put is acknowledged at once, its sync begun within {both}"),
            Mode::GroupOfTime if self.keeps_bounds => {
                format!("each put is acknowledged at once, and the caller syncs within {both}")
            }
            Mode::GroupOfPuts if self.keeps_bounds => {
                "each put is acknowledged at once, and survives power loss once the caller has synced"
                    .to_owned()
            }
            Mode::GroupOfTime => format!(
                "each put is acknowledged in an open transaction, whose commit is begun within {both}"
            ),
            Mode::GroupOfPuts => {
                "a put counts when its transaction is committed, and survives power loss from then on"
                    .to_owned()
            }
        };
        format!("{}: {promise} ({terms})", mode.name())
    }
}

/// A store that the putting thread syncs, in its own time, before it lags too far.
///
/// Nothing is synced while nobody puts, because the bench never pauses.
struct Batched {
    store: Box<dyn Store>,
    bounds: Bounds,
    /// Bytes of values since the last sync.
    pending_len: usize,
    /// When the first put after the last sync returned.
    pending_since: Option<Instant>,
    lag: Lag,
}

impl Batched {
    fn new(store: Box<dyn Store>, bounds: Bounds) -> Self {
        Batched { store, bounds, pending_len: 0, pending_since: None, lag: Lag::default() }
    }

    /// Whether another put of so many bytes has to wait for a sync.
    fn is_due(&mut self, next_len: usize) -> bool {
        let since = *self.pending_since.get_or_insert_with(Instant::now);
        self.pending_len + next_len > self.bounds.len
            || self.bounds.time.is_some_and(|time| since.elapsed() >= time)
    }
}

impl Store for Batched {
    fn put(&mut self, key: u64, value: &[u8]) -> Result<()> {
        self.store.put(key, value)?;
        self.pending_len += value.len();
        if self.is_due(value.len()) {
            let start = Instant::now();
            self.sync()?;
            *self.lag.waited.get_or_insert_default() += start.elapsed();
        }
        Ok(())
    }

    fn get(&mut self, key: u64, value: &mut Vec<u8>) -> Result<bool> {
        self.store.get(key, value)
    }

    fn sync(&mut self) -> Result<()> {
        self.store.sync()?;
        self.pending_len = 0;
        if let Some(since) = self.pending_since.take() {
            self.lag.longest = self.lag.longest.max(since.elapsed());
        }
        Ok(())
    }

    fn lag(&self) -> Lag {
        self.lag
    }
}

/// The value of a key, in every bench and test.
pub(crate) fn value_of(key: u64) -> [u8; VALUE_LEN] {
    let mut value = [0x5a; VALUE_LEN];
    value[..8].copy_from_slice(&key.to_le_bytes());
    value
}

/// Refuses a store that has lost one of these keys, or returns another value.
///
/// # Errors
///
/// When an answer is wrong, or the store reports an error.
pub(crate) fn verify(store: &mut dyn Store, keys: impl IntoIterator<Item = u64>) -> Result<()> {
    let mut value = Vec::new();
    for key in keys {
        ensure!(store.get(key, &mut value)?, "key {key:#x} was stored and is not found");
        ensure!(
            value == value_of(key),
            "key {key:#x} has another value than was stored: {value:?}"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    /// Counts the puts before each sync.
    struct Counting(Rc<RefCell<Vec<usize>>>);

    impl Store for Counting {
        fn put(&mut self, _key: u64, _value: &[u8]) -> Result<()> {
            *self.0.borrow_mut().last_mut().expect("it begins with a count") += 1;
            Ok(())
        }

        fn get(&mut self, _key: u64, _value: &mut Vec<u8>) -> Result<bool> {
            Ok(false)
        }

        fn sync(&mut self) -> Result<()> {
            self.0.borrow_mut().push(0);
            Ok(())
        }
    }

    /// The puts before each sync, when `puts` values of 100 bytes come `pause` apart; and the lag.
    fn syncs(bounds: Bounds, puts: u64, pause: Duration) -> (Vec<usize>, Lag) {
        let counts = Rc::new(RefCell::new(vec![0]));
        let mut store = Batched::new(Box::new(Counting(Rc::clone(&counts))), bounds);
        for key in 0..puts {
            store.put(key, &value_of(key)).expect("counting cannot fail");
            std::thread::sleep(pause);
        }
        let lag = store.lag();
        drop(store);
        (counts.take(), lag)
    }

    #[test]
    fn a_batched_store_never_holds_more_bytes_than_the_bound() {
        let bounds = Bounds { len: 350, time: None };
        assert_eq!(syncs(bounds, 8, Duration::ZERO).0, [3, 3, 2]);
        let group = Mode::GroupOfPuts.bounds().expect("groups have bounds");
        assert_eq!(syncs(group, 10_486, Duration::ZERO).0, [LAG_LEN / VALUE_LEN, 1]);
        assert_eq!(Mode::GroupOfPuts.name(), "group of 10485 puts");
    }

    #[test]
    fn a_batched_store_never_holds_a_put_longer_than_the_bound() {
        let time = Duration::from_millis(3);
        let bounds = Bounds { len: usize::MAX, time: Some(time) };
        let (counts, lag) = syncs(bounds, 9, 2 * time);
        assert!(counts.iter().all(|&puts| puts <= 2), "{counts:?}");
        assert!(counts.len() > 4, "{counts:?}");
        assert!(lag.longest >= time && lag.waited < Some(lag.longest), "{lag:?}");
    }
}
