//! The axis of the channels of images and sounds.

use remat::DType;
use remat::nn::Channels;
use serde::{Deserialize, Serialize};

/// Where the channels of a batch are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ChannelsAre {
    /// `[batch, channels, spatial..]`
    #[default]
    First,
    /// `[batch, spatial.., channels]`
    Last,
}

impl ChannelsAre {
    /// The option of layers.
    pub(crate) fn option(self) -> Channels {
        match self {
            ChannelsAre::First => Channels::First,
            ChannelsAre::Last => Channels::Last,
        }
    }

    /// The axis of the channels among this many spatial axes.
    pub(crate) fn axis(self, spatial: usize) -> usize {
        match self {
            ChannelsAre::First => 1,
            ChannelsAre::Last => 1 + spatial,
        }
    }

    /// The spatial axes.
    pub(crate) fn spatial<const N: usize>(self) -> [usize; N] {
        let first = match self {
            ChannelsAre::First => 2,
            ChannelsAre::Last => 1,
        };
        std::array::from_fn(|i| first + i)
    }

    /// The shape of a batch.
    pub(crate) fn shape(self, batch: usize, channels: usize, spatial: &[usize]) -> Vec<usize> {
        let mut shape = [&[batch], spatial].concat();
        shape.insert(self.axis(spatial.len()), channels);
        shape
    }

    /// What a pool has for each of the last axes, with `one` for the channels if they are among them.
    pub(crate) fn of_pool<T: Clone>(self, mut spatial: Vec<T>, one: T) -> Vec<T> {
        if self == ChannelsAre::Last {
            spatial.push(one);
        }
        spatial
    }
}

/// The form of weights and activations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    /// Their dtype.
    pub(crate) dtype: DType,
    /// The axis of the channels of activations.
    pub(crate) channels: ChannelsAre,
}
