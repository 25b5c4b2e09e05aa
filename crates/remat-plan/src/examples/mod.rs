//! Graphs for tests, benchmarks and documentation: training steps of chains and of a GPT, and random graphs.

mod models;
mod random;

pub use models::{Gpt, Keep, Net, chain};
pub use random::Random;
