//! Traits that a handle cannot implement by calling the struct's methods.

use std::fmt;
use std::ops::AddAssign;

use remanent_structures::transactional;

#[transactional]
struct Count {
    count: u64,
}

#[transactional]
impl Default for Count {
    fn default() -> Self {
        Count { count: 0 }
    }
}

#[transactional]
impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.count += other.count;
    }
}

#[transactional]
impl AsRef<u64> for Count {
    fn as_ref(&self) -> &u64 {
        &self.count
    }
}

#[transactional]
impl fmt::Debug for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.count.fmt(f)
    }
}

/// Promises something.
unsafe trait Promise {}

#[transactional]
unsafe impl Promise for Count {}

fn main() {}
