use remanent_structures::Stored;

#[derive(Clone, Stored)]
struct Count {
    count: usize,
}

fn main() {}
