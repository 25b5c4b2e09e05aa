//! Images as batches.

use remat::ir::{Element, counted};
use remat::layer::location;
use remat::{Result, Tensor, Tree};

use super::{Channels, Images};
use crate::failure::{expect_memory, invalid};
use crate::shuffle::{Shuffle, mixed};

/// The operation that errors name.
const BATCHES: &str = "ImageBatches";

/// Images `[batch, height, width, channels]` of f32 or u8, and their classes `i32[batch]`.
#[derive(Clone, Tree)]
pub struct ImageBatch {
    /// The images.
    pub images: Tensor,
    /// Their classes.
    pub labels: Tensor,
}

/// The batches of a training run. The images of a step's batch, their crops and their flips depend only on the seed and the step, so that a
/// resumed run sees the same batches.
///
/// An epoch has every image once, in a random order that is computed, not stored; a batch may have images of two epochs.
///
/// ```
/// use remat_data::{ImageBatches, Images};
///
/// let images = Images::new((0..8).collect(), [2, 2, 1], vec![0, 1], 2)?;
/// let batches = ImageBatches::new(images, 2, 0)?;
/// let batch = batches.bytes(0)?;
/// let mut labels = batch.labels.to_vec::<i32>()?;
/// labels.sort();
/// assert_eq!(labels, [0, 1]);
/// assert_eq!(batches.get(0)?.images.shape()?, [2, 2, 2, 1]);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ImageBatches {
    images: Images,
    batch: usize,
    seed: u64,
    /// The float for each byte of each channel.
    values: Vec<[f32; 256]>,
    padding: usize,
    flips: bool,
}

/// The augmentation of an image: the start of its crop in the padded image, and whether it is flipped.
#[derive(Clone, Copy)]
struct Change {
    top: usize,
    left: usize,
    is_flipped: bool,
}

impl ImageBatches {
    /// Batches of this many images, with values from 0 to 1, neither cropped nor flipped.
    ///
    /// # Errors
    /// If `batch` is 0 or there are no images.
    #[track_caller]
    pub fn new(images: Images, batch: usize, seed: u64) -> Result<ImageBatches> {
        if batch == 0 || images.is_empty() {
            let message = format!("a batch of {batch} images of {} is empty", images.len());
            return Err(invalid(BATCHES, message).at(location()));
        }
        let values = vec![std::array::from_fn(|byte| byte as f32 / 255.0); images.shape()[2]];
        Ok(ImageBatches { images, batch, seed, values, padding: 0, flips: false })
    }

    /// With the mean of its channel subtracted from each value, which is then divided by the standard deviation. Use those of the training
    /// images for test images too.
    ///
    /// # Errors
    /// If the number of channels differs, a mean is not finite, or a deviation is not positive.
    #[track_caller]
    pub fn with_channels(mut self, channels: &Channels) -> Result<ImageBatches> {
        let loc = location();
        let count = self.values.len();
        if channels.mean.len() != count || channels.deviation.len() != count {
            let (means, deviations) = (channels.mean.len(), channels.deviation.len());
            let message = format!("there are {means} means and {deviations} standard deviations for {count} channels");
            return Err(invalid(BATCHES, message).at(loc));
        }
        for (values, (&mean, &deviation)) in self.values.iter_mut().zip(channels.mean.iter().zip(&channels.deviation)) {
            if !mean.is_finite() || !deviation.is_finite() || deviation <= 0.0 {
                let message =
                    format!("values cannot be normalised by a mean of {mean} and a standard deviation of {deviation}");
                return Err(invalid(BATCHES, message).at(loc));
            }
            *values = std::array::from_fn(|byte| (byte as f32 / 255.0 - mean) / deviation);
        }
        Ok(self)
    }

    /// With random crops of the images' size, from images padded by a border of this many black pixels.
    ///
    /// # Errors
    /// If the border is not smaller than the images.
    #[track_caller]
    pub fn with_crops(self, padding: usize) -> Result<ImageBatches> {
        let [height, width, _] = self.images.shape();
        if padding >= height.min(width) {
            let message = format!("a border of {padding} pixels is not smaller than images of {height} by {width}");
            return Err(invalid(BATCHES, message).at(location()));
        }
        Ok(ImageBatches { padding, ..self })
    }

    /// With half of the images flipped horizontally, at random.
    pub fn with_flips(self) -> ImageBatches {
        ImageBatches { flips: true, ..self }
    }

    /// The batch of a step, with images as f32.
    ///
    /// # Errors
    /// If a picture cannot be read or decoded, or there is no memory for the batch.
    #[track_caller]
    pub fn get(&self, step: u64) -> Result<ImageBatch> {
        let loc = location();
        let (pixels, labels) = self.changed(step).map_err(|error| error.at(loc))?;
        Ok(self.tensors(self.floats(pixels), labels))
    }

    /// The same images as u8, not normalised: a quarter of the memory, for models that normalise them.
    ///
    /// # Errors
    /// As [`ImageBatches::get`].
    #[track_caller]
    pub fn bytes(&self, step: u64) -> Result<ImageBatch> {
        let loc = location();
        let (pixels, labels) = self.changed(step).map_err(|error| error.at(loc))?;
        Ok(self.tensors(pixels, labels))
    }

    /// Batches of all images in order, as f32, neither cropped nor flipped, to evaluate a model. The last batch may have fewer images.
    ///
    /// # Errors
    /// A batch is an error as in [`ImageBatches::get`].
    pub fn in_order(&self) -> impl Iterator<Item = Result<ImageBatch>> + use<> {
        let (this, count) = (self.clone(), self.images.len());
        (0..count).step_by(self.batch).map(move |first| {
            let images: Vec<usize> = (first..count.min(first.saturating_add(this.batch))).collect();
            this.expect_memory(images.len())?;
            let pixels = this.images.several(&images)?.concat();
            Ok(this.tensors(this.floats(pixels), this.labels(&images)))
        })
    }

    /// The bytes of a step's augmented images, and their labels.
    ///
    /// # Errors
    /// If a picture cannot be read or decoded, or there is no memory for the batch.
    fn changed(&self, step: u64) -> Result<(Vec<u8>, Vec<i32>)> {
        self.expect_memory(self.batch)?;
        let count = self.images.len() as u64;
        let first = step.wrapping_mul(self.batch as u64);
        // Images are counted over all epochs.
        let rows = (0..self.batch as u64).map(|row| first.wrapping_add(row));
        let image = |at: u64| Shuffle::new(self.seed, at / count, count).at(at % count) as usize;
        let images: Vec<usize> = rows.clone().map(image).collect();
        let all = self.images.several(&images)?;
        let mut pixels = Vec::with_capacity(all.iter().map(|image| image.len()).sum());
        rows.zip(&all).for_each(|(at, image)| self.add(image, self.change(at), &mut pixels));
        Ok((pixels, self.labels(&images)))
    }

    /// # Errors
    /// If there is no memory for a batch of this many images: their numbers, their bytes twice and as f32, and their labels.
    fn expect_memory(&self, count: usize) -> Result<()> {
        let shape = self.images.shape();
        let of_image = shape.iter().try_fold(6usize, |bytes, &size| bytes.checked_mul(size));
        let bytes = of_image.and_then(|bytes| bytes.checked_add(64)?.checked_mul(count));
        let what = || format!("a batch of {} of shape {shape:?}", counted(count, "image"));
        expect_memory(BATCHES, what, bytes)
    }

    /// The classes of images.
    fn labels(&self, images: &[usize]) -> Vec<i32> {
        images.iter().map(|&image| self.images.labels()[image]).collect()
    }

    fn change(&self, at: u64) -> Change {
        let bits = mixed(mixed(self.seed ^ 2) ^ at);
        let places = 2 * self.padding as u64 + 1;
        let crop = |bits: u64| (mixed(bits) % places) as usize;
        Change { top: crop(bits), left: crop(bits ^ 1), is_flipped: self.flips && mixed(bits ^ 2) & 1 == 1 }
    }

    /// Appends an image with its augmentation.
    fn add(&self, image: &[u8], change: Change, pixels: &mut Vec<u8>) {
        let [height, width, channels] = self.images.shape();
        let inside = |at: usize, size: usize| at.checked_sub(self.padding).filter(|&at| at < size);
        for y in 0..height {
            let row = inside(y + change.top, height).map(|y| &image[y * width * channels..][..width * channels]);
            for x in 0..width {
                let x = if change.is_flipped { width - 1 - x } else { x };
                match (row, inside(x + change.left, width)) {
                    (Some(row), Some(x)) => pixels.extend(&row[x * channels..][..channels]),
                    _ => pixels.extend(std::iter::repeat_n(0, channels)),
                }
            }
        }
    }

    /// The floats of whole images.
    fn floats(&self, pixels: Vec<u8>) -> Vec<f32> {
        pixels.into_iter().zip(self.values.iter().cycle()).map(|(byte, values)| values[byte as usize]).collect()
    }

    fn tensors<T: Element>(&self, pixels: Vec<T>, labels: Vec<i32>) -> ImageBatch {
        let ([height, width, channels], count) = (self.images.shape(), labels.len());
        ImageBatch {
            images: Tensor::from_vec(pixels, [count, height, width, channels]),
            labels: Tensor::from_vec(labels, [count]),
        }
    }
}
