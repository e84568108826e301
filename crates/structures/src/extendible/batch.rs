//! What batches need of a map.

use super::ExtendibleMap;
use super::step::Edit;
use crate::batch::edit::batched;

batched!(ExtendibleMap, Key, |core, key| core.hash(key).0);
