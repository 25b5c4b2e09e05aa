//! The records of a run besides its checkpoints and metrics: a page with charts.

mod report;
mod series;

pub(crate) use report::{Report, Timeline};
