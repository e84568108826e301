use remanent_structures::Stored;

#[derive(Clone, Stored)]
#[repr(u64)]
enum Level {
    Low = 1,
    High = 1 << 63,
}

fn main() {
    let _ = <Level as Stored>::LEN;
}
