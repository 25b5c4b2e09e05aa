//! Helpers that the `remat` command shares with other commands, such as the benchmarks: exit codes and error lines, values of arguments,
//! tables as text, progress bars, times, and measurements in separate processes.

pub mod arguments;
pub mod child;
pub mod command;
pub mod progress;
pub mod resident;
pub mod table;
pub mod times;
