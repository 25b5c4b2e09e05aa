//! What a run leaves beside its checkpoints: event files of TensorBoard and a page with charts.

mod report;
mod series;
mod tensorboard;

pub(crate) use report::Report;
pub(crate) use tensorboard::Events;
