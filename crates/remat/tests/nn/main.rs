//! The layers and models of `nn`.

mod basic;
mod decoders;
mod stack;
mod vectors;
