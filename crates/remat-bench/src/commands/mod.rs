//! The commands: their arguments, the cases that they measure, and their output.

pub(crate) mod accuracy;
pub(crate) mod algorithms;
pub(crate) mod calls;
pub(crate) mod chart;
pub(crate) mod device;
pub(crate) mod generate;
pub(crate) mod plans;
pub(crate) mod profile;
pub(crate) mod reads;
pub(crate) mod scaling;
pub(crate) mod stablehlo;
pub(crate) mod step;
pub(crate) mod timeline;
pub(crate) mod vision;
