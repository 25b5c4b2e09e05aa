//! Linear systems and factorisations.

mod systems;
mod vectors;
