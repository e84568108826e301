//! What batches need of a map.

use std::sync::{Arc, OnceLock};

use remanent_pmem::Medium;

use super::ExtendibleMap;
use super::step::Edit;
use crate::batch::Gate;
use crate::batch::edit::{Target, batched};
use crate::batch::intents::Intents;
use crate::shared::{Operation, Site};
use crate::stored::{Key, Stored};

impl<K, V, M> Target<K, V, M> for ExtendibleMap<K, V, M>
where
    K: Key + ?Sized,
    V: Stored + ?Sized,
    M: Medium,
{
    fn site(&self) -> &Site<M> {
        &self.core.heap
    }

    fn gate(&self) -> &Gate {
        &self.core.gate
    }

    fn gate_key(&self, key: &K) -> u64 {
        self.core.hash(key).0
    }

    fn intents(&self) -> &OnceLock<Arc<Intents<M>>> {
        &self.core.intents
    }

    fn edit<'s>(&'s self, key: &'s K, value: Option<&'s V>) -> impl Operation<'s, M> + 's {
        Edit::new(&self.core, key, value)
    }
}

batched!(ExtendibleMap, Key);
