//! Transformations of programs, of loops and branches, of functions with rules of their own, large, random and on many threads.

mod close;
mod closed;
mod control;
mod custom_rules;
mod large_programs;
mod late_errors;
mod linear_maps;
mod loops;
mod random_programs;
mod small_programs;
mod threads;
