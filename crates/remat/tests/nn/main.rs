//! The layers and models of `nn`.

mod basic;
mod channels;
mod constructors;
mod cross;
mod decoders;
mod generate;
mod initializer;
mod layers;
mod losses;
mod resize;
mod selection;
mod stack;
mod summary;
mod vectors;
mod vision;
