//! The layers and models of `nn`.

mod basic;
mod stack;
