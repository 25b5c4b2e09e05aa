//! What the commands `remat` and `remat-bench` share: exit codes and error lines, values of arguments, tables as text, texts of unknown
//! origin, outputs that may go away, progress bars, times, and measurements in separate processes.
//!
//! Layers, each using only those above it in this list:
//!
//! 1. `arguments`, `child`, `output`, `progress`, `resident`, `table`, `text`, `times`: each by itself
//! 2. `command`: exit codes and error lines

pub mod arguments;
pub mod child;
pub mod command;
pub mod output;
pub mod progress;
pub mod resident;
pub mod table;
pub mod text;
pub mod times;
