//! Labelled images: from files or drawn, and their batches.

mod batches;
mod cifar;
mod drawn;
mod idx;

use std::path::Path;
use std::sync::Arc;

use remat::Result;
use remat::ir::counted;
use remat::layer::location;

use crate::failure::{invalid, listed, wrong};
pub use batches::{ImageBatch, ImageBatches};

/// The operation that errors name.
const IMAGES: &str = "Images";

/// Which images of a data set are meant.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Split {
    /// Those to learn.
    Train,
    /// Those that test what was learnt.
    Test,
}

/// Images of one size with a class each, as bytes in memory. They are cheap to clone.
///
/// ```
/// use remat_data::{ImageBatches, Images};
///
/// let images = Images::drawn(100, [8, 8, 3], 10, 0)?;
/// let channels = images.channels();
/// let batches = ImageBatches::new(images, 16, 1)?.with_channels(&channels)?.with_crops(1)?.with_flips();
/// let batch = batches.get(0);
/// assert_eq!(batch.images.shape()?, [16, 8, 8, 3]);
/// assert_eq!(batch.labels.shape()?, [16]);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Images(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Image by image, each row by row, and pixel by pixel.
    pixels: Vec<u8>,
    labels: Vec<i32>,
    /// Height, width and channels, none of which is 0.
    shape: [usize; 3],
    classes: usize,
    notes: Vec<String>,
}

/// Mean and standard deviation of each channel, of values from 0 to 1.
#[derive(Clone, PartialEq, Debug)]
pub struct Channels {
    /// The means.
    pub mean: Vec<f32>,
    /// The standard deviations, of the population; 1 for a channel that is the same everywhere.
    pub deviation: Vec<f32>,
}

impl Images {
    /// Images from their bytes, of a height, width and number of channels, image by image, row by row and pixel by pixel; each has a label below `classes`.
    ///
    /// # Errors
    /// If a size is 0; if there are not as many bytes as the labels and the shape say; if a label is not below `classes`.
    #[track_caller]
    pub fn new(pixels: Vec<u8>, shape: [usize; 3], labels: Vec<i32>, classes: usize) -> Result<Images> {
        let loc = location();
        let size = size_of(labels.len(), shape).map_err(|message| invalid(IMAGES, message).at(loc))?;
        if pixels.len() != size {
            let [height, width, channels] = shape;
            let of = counted(labels.len(), "image");
            let message =
                format!("{of} of shape [{height}, {width}, {channels}] have {size} bytes, not {}", pixels.len());
            return Err(invalid(IMAGES, message).at(loc));
        }
        check_labels(&labels, classes).map_err(|message| invalid(IMAGES, format!("it {message}")).at(loc))?;
        Ok(Images::checked(pixels, shape, labels, classes))
    }

    fn checked(pixels: Vec<u8>, shape: [usize; 3], labels: Vec<i32>, classes: usize) -> Images {
        Images(Arc::new(Inner { pixels, labels, shape, classes, notes: Vec::new() }))
    }

    /// The images of a folder, by the names that the files of data sets have: MNIST and what is published in its format (Fashion-MNIST, KMNIST), with
    /// `train-images-idx3-ubyte` and three more; CIFAR-10 with `data_batch_1.bin` to `data_batch_5.bin` and `test_batch.bin`; CIFAR-100 with
    /// `train.bin` and `test.bin`, by its 100 fine labels. Each file may be compressed, with `.gz` or `.zst` behind its name. Folders of photographs are not
    /// read.
    ///
    /// # Errors
    /// If the folder has the files of none of these, or one cannot be read, is damaged, cut off, or has a label that is not of a class.
    #[track_caller]
    pub fn open(folder: impl AsRef<Path>, split: Split) -> Result<Images> {
        let (loc, folder) = (location(), folder.as_ref());
        let open = || {
            let firsts = [idx::names(split)[0], cifar::NAMES_10[0], cifar::NAMES_100[0]];
            match firsts.map(|name| file(folder, name).exists()) {
                [true, _, _] => idx::read(&idx::names(split).map(|name| file(folder, name)), 10),
                [_, true, _] => cifar::read(folder, split, cifar::TEN),
                [_, _, true] => cifar::read(folder, split, cifar::HUNDRED),
                _ => Err(wrong(IMAGES, folder, format!("has no images: none of the files {}", listed(firsts)))),
            }
        };
        open().map_err(|error| error.at(loc))
    }

    /// The images of a file in the IDX format (the one of MNIST), `[images, height, width]` or `[images, height, width, channels]`, with the labels of
    /// another, which are below `classes`. Files whose names end with `.gz` or `.zst` are decompressed.
    ///
    /// # Errors
    /// If one cannot be read, is damaged, or has something else; if they have different numbers of images, or a label is not below `classes`.
    #[track_caller]
    pub fn idx(images: impl AsRef<Path>, labels: impl AsRef<Path>, classes: usize) -> Result<Images> {
        let loc = location();
        idx::read(&[images.as_ref().into(), labels.as_ref().into()], classes).map_err(|error| error.at(loc))
    }

    /// Images that are computed, for where there are no files: those of a class have one pattern, at different positions and with noise. Patterns do not
    /// depend on the seed, so that images of one seed test what was learnt from those of another. [`Images::notes`] says that they are drawn.
    ///
    /// # Errors
    /// If a size, or the number of images or classes, is 0.
    #[track_caller]
    pub fn drawn(count: usize, shape: [usize; 3], classes: usize, seed: u64) -> Result<Images> {
        let loc = location();
        drawn::images(count, shape, classes, seed).map_err(|message| invalid(IMAGES, message).at(loc))
    }

    /// The number of images.
    pub fn len(&self) -> usize {
        self.0.labels.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Height, width and channels.
    pub fn shape(&self) -> [usize; 3] {
        self.0.shape
    }

    /// The number that all labels are below.
    pub fn classes(&self) -> usize {
        self.0.classes
    }

    /// The class of each image.
    pub fn labels(&self) -> &[i32] {
        &self.0.labels
    }

    /// The bytes of an image, row by row and pixel by pixel; none where there is no such image.
    pub fn pixels(&self, image: usize) -> &[u8] {
        let size = self.0.shape.iter().product::<usize>();
        let start = image.saturating_mul(size);
        self.0.pixels.get(start..start.saturating_add(size)).unwrap_or_default()
    }

    /// Sentences for the user.
    pub fn notes(&self) -> &[String] {
        &self.0.notes
    }

    /// Mean and standard deviation of each channel, to normalise these images and those that test what was learnt from them.
    pub fn channels(&self) -> Channels {
        let channels = self.0.shape[2];
        let mut sums = vec![(0u64, 0u64); channels];
        for pixel in self.0.pixels.chunks_exact(channels) {
            for ((sum, squares), &byte) in sums.iter_mut().zip(pixel) {
                *sum += u64::from(byte);
                *squares += u64::from(byte).pow(2);
            }
        }
        let count = (self.0.pixels.len() / channels).max(1) as f64;
        let of = |&(sum, squares): &(u64, u64)| {
            let mean = sum as f64 / count;
            let deviation = (squares as f64 / count - mean * mean).max(0.0).sqrt();
            ((mean / 255.0) as f32, if deviation > 0.0 { (deviation / 255.0) as f32 } else { 1.0 })
        };
        let (mean, deviation) = sums.iter().map(of).unzip();
        Channels { mean, deviation }
    }
}

/// The bytes of this many images.
///
/// # Errors
/// If a size is 0, or they are more than there can be.
fn size_of(count: usize, shape: [usize; 3]) -> std::result::Result<usize, String> {
    let [height, width, channels] = shape;
    if shape.contains(&0) {
        return Err(format!("images of shape [{height}, {width}, {channels}] are empty"));
    }
    let size = shape.iter().try_fold(count, |size, &dim| size.checked_mul(dim));
    size.ok_or_else(|| format!("{} of shape [{height}, {width}, {channels}] are too large", counted(count, "image")))
}

/// # Errors
/// What is wrong with the labels.
fn check_labels(labels: &[i32], classes: usize) -> std::result::Result<(), String> {
    let is_class = |label: i32| usize::try_from(label).is_ok_and(|label| label < classes);
    match labels.iter().enumerate().find(|&(_, &label)| !is_class(label)) {
        None => Ok(()),
        Some((image, label)) => {
            Err(format!("has the label {label} for image {image}, and the number of classes is {classes}"))
        }
    }
}

/// A file of a folder, which may be compressed.
fn file(folder: &Path, name: &str) -> std::path::PathBuf {
    let compressed = ["gz", "zst"].map(|ending| folder.join(format!("{name}.{ending}")));
    let plain = folder.join(name);
    if plain.exists() { plain } else { compressed.into_iter().find(|path| path.exists()).unwrap_or(plain) }
}
