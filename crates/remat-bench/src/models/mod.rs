//! The measured models, each with its sizes as arguments, its batch, and its loss under a policy.

mod channels;
pub(crate) mod gpt;
pub(crate) mod mobilenet;
pub(crate) mod resnet;
pub(crate) mod unet;
pub(crate) mod wave;

pub(crate) use channels::{ChannelsAre, Form};
