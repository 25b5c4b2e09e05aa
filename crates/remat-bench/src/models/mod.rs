//! The models that are measured, each with its sizes as arguments, its batch and its loss under a policy.

pub(crate) mod gpt;
pub(crate) mod resnet;
pub(crate) mod unet;
