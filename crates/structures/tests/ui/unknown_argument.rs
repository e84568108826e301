//! What the attribute's arguments may be.

use remanent_structures::transactional;

#[transactional(lines)]
struct First {
    count: u64,
}

#[transactional(line = 1)]
struct Second {
    count: u64,
}

#[transactional]
struct Count {
    count: u64,
}

#[transactional(line)]
impl Count {
    fn raise(&mut self) {
        self.count += 1;
    }
}

#[transactional]
impl Count {
    #[transactional(commit)]
    fn lower(&mut self) -> Result<(), ()> {
        self.count -= 1;
        Ok(())
    }

    #[transactional(abort_on_err, commit_on_err)]
    fn both(&mut self) -> Result<(), ()> {
        Ok(())
    }

    #[transactional(commit_on_err)]
    fn check(&self) -> Result<(), ()> {
        Ok(())
    }
}

fn main() {}
