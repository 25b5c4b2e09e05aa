//! Graphs for tests, benchmarks and documentation: training steps of chains, of a GPT and of convolutional networks, with values that are
//! kept or computed again, and random graphs.

mod convs;
mod evict;
mod models;
mod prices;
mod random;

pub use convs::{Conv, Shape};
pub use evict::evict;
pub use models::{Gpt, Keep, Net, chain};
pub use prices::priced;
pub use random::Random;
