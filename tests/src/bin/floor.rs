//! The floor of a run (`src/floor`), as a program.

fn main() -> anyhow::Result<()> {
    postern_tests::floor::run(&std::env::args().skip(1).collect::<Vec<_>>())
}
