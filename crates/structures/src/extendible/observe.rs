//! Telling changes to somebody who keeps a log of them.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::OnceLock;

use remanent_pmem::Medium;

use super::ExtendibleMap;
use crate::stored::{Key, Stored};

/// A change of a map, as its [observer](ExtendibleMap::observe) is told.
#[derive(Debug)]
pub enum Changed<'c, K: ?Sized, V: ?Sized> {
    /// The key has this value now.
    Put(&'c K, &'c V),
    /// The key has no value any more.
    Removed(&'c K),
    /// No key has a value any more.
    Cleared,
}

type Observe<K, V> = dyn Fn(Changed<'_, K, V>) + Send + Sync + UnwindSafe + RefUnwindSafe;

/// Who is told of changes, if anybody is.
pub(super) struct Observer<K: ?Sized, V: ?Sized>(OnceLock<Box<Observe<K, V>>>);

impl<K: ?Sized, V: ?Sized> Observer<K, V> {
    pub(super) const fn nobody() -> Self {
        Observer(OnceLock::new())
    }

    /// Tells a change. The caller has what keeps others from changing the same, has not changed it
    /// yet, and will not fail.
    #[inline(always)]
    pub(super) fn tell(&self, change: Changed<'_, K, V>) {
        if let Some(observe) = self.0.get() {
            observe(change);
        }
    }
}

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium> ExtendibleMap<K, V, M> {
    /// Has `observe` called with each change from now on, until the map is closed: for a log of
    /// changes, or a copy elsewhere. Returns false, and changes nothing, if it was called before.
    ///
    /// A change is told while nobody else can change the entry, in the thread that makes it, and
    /// before the fence that makes it durable. So those of one key are told in their order, and
    /// what `observe` flushes is durable when the change is. A crash in between may leave one
    /// without the other.
    ///
    /// `observe` should be quick. It must not use the map, and must not panic: the change is not
    /// made then, and a record of it takes space until the pool is opened after a crash.
    ///
    /// Without an observer, a change takes no fence more, and one load.
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    ///
    /// use remanent_pmem::Pool;
    /// use remanent_structures::ExtendibleMap;
    /// use remanent_structures::extendible::Changed;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
    /// let stock: ExtendibleMap<str, u64> = ExtendibleMap::create(&pool, "stock")?;
    /// let log = Arc::new(Mutex::new(Vec::new()));
    /// let to = Arc::clone(&log);
    /// stock.observe(move |change| {
    ///     to.lock().unwrap().push(match change {
    ///         Changed::Put(name, count) => format!("{name} = {count}"),
    ///         Changed::Removed(name) => format!("no {name}"),
    ///         Changed::Cleared => "nothing".to_owned(),
    ///     });
    /// });
    /// stock.put("bolts", &100)?;
    /// stock.remove("bolts")?;
    /// assert_eq!(*log.lock().unwrap(), ["bolts = 100", "no bolts"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn observe(
        &self,
        observe: impl Fn(Changed<'_, K, V>) + Send + Sync + UnwindSafe + RefUnwindSafe + 'static,
    ) -> bool {
        self.core.observer.0.set(Box::new(observe)).is_ok()
    }
}

impl<K: ?Sized, V: ?Sized> fmt::Debug for Observer<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Observer").field(&self.0.get().is_some()).finish()
    }
}
