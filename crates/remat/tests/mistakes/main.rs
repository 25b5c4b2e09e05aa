//! Mistakes that users make, and the whole message that each one gets: the operation, the types, what to do, and the
//! user's own line. One file per subject.

#[macro_use]
mod report;

mod attention;
mod axes;
mod checkpoint;
mod compiled;
mod construct;
mod derivatives;
mod dtypes;
mod einsum;
mod images;
mod indexing;
mod loops;
mod memory;
mod nested;
mod odd;
mod rules;
mod shapes;
mod traced;
mod training;
