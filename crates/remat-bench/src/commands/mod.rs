//! The commands: their arguments, the cases that they measure and what they print.

pub(crate) mod calls;
pub(crate) mod scaling;
pub(crate) mod step;
pub(crate) mod vision;
