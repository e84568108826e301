use remanent_structures::Stored;

#[derive(Clone, Stored)]
enum Shape {
    Point,
    Circle { radius: u64 },
}

fn main() {}
