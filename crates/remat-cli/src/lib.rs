//! Helpers that the `remat` command shares with other commands, such as the benchmarks: exit codes and error lines, values of arguments,
//! tables as text, texts of unknown origin, outputs that may go away, progress bars, times, and measurements in separate processes.

pub mod arguments;
pub mod child;
pub mod command;
pub mod output;
pub mod progress;
pub mod resident;
pub mod table;
pub mod text;
pub mod times;
