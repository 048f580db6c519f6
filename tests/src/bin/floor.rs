//! The floor of a run as a program of its own (`src/floor`).

fn main() -> anyhow::Result<()> {
    postern_tests::floor::run(&std::env::args().skip(1).collect::<Vec<_>>())
}
