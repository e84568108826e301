//! A type is called a result, and is no `Result`.

use remanent_structures::transactional;

struct ScanResult(u64);

#[transactional]
struct Count {
    count: u64,
}

#[transactional]
impl Count {
    fn scan(&mut self) -> ScanResult {
        self.count += 1;
        ScanResult(self.count)
    }
}

fn main() {}
