use remanent_structures::Stored;

#[derive(Clone, Stored)]
struct Name {
    name: &'static str,
}

fn main() {}
