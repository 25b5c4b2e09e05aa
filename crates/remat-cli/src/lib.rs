//! What the `remat` command shares with other commands that are built upon the library, such as the benchmarks: how a command
//! ends, values of arguments, tables as text.

pub mod arguments;
pub mod command;
pub mod table;
