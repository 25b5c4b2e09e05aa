//! What the `remat` command shares with other commands that are built upon the library, such as the benchmarks: how a command
//! ends, values of arguments, tables as text, progress bars, times, measurements in processes of their own.

pub mod arguments;
pub mod child;
pub mod command;
pub mod progress;
pub mod resident;
pub mod table;
pub mod times;
