//! What batches need of a map.

use super::HashMap;
use super::layout::Order;
use super::step::Edit;
use crate::batch::edit::batched;

batched!(HashMap, Key, |core, key| Order::of_hash(core.hash(key)).0);
