//! Labelled images, from files or synthetic, and their batches.

mod batches;
mod cifar;
#[cfg(feature = "image")]
mod decode;
mod drawn;
mod folder;
mod idx;

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::thread::ScopedJoinHandle;

use remat::files::wrong;
use remat::ir::counted;
use remat::layer::location;
use remat::{Error, ErrorKind, Result};

use crate::failure::{invalid, listed};
pub use batches::{ImageBatch, ImageBatches};
pub use folder::{Fit, Pictures};

/// The operation that errors name.
const IMAGES: &str = "Images";

/// How many images are in memory at a time for statistics of all images.
const TOGETHER: usize = 256;

/// The split of a data set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Split {
    /// The training images.
    Train,
    /// The test images.
    Test,
}

/// Images of one size with a class each: as bytes in memory, or as picture files that are decoded on request. Cloning is cheap.
///
/// ```
/// use remat_data::{ImageBatches, Images};
///
/// let images = Images::drawn(100, [8, 8, 3], 10, 0)?;
/// let channels = images.channels()?;
/// let batches = ImageBatches::new(images, 16, 1)?.with_channels(&channels)?.with_crops(1)?.with_flips();
/// let batch = batches.get(0)?;
/// assert_eq!(batch.images.shape()?, [16, 8, 8, 3]);
/// assert_eq!(batch.labels.shape()?, [16]);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Images(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pixels: Pixels,
    labels: Vec<i32>,
    /// Height, width and channels, all at least 1.
    shape: [usize; 3],
    classes: usize,
    /// The names of the classes, if they have any.
    names: Vec<String>,
    notes: Vec<String>,
}

/// The source of pixels.
#[derive(Debug)]
enum Pixels {
    /// Image by image, row by row, and pixel by pixel.
    Memory(Vec<u8>),
    Files(folder::Files),
}

/// Mean and standard deviation of each channel, of values from 0 to 1.
#[derive(Clone, PartialEq, Debug)]
pub struct Channels {
    /// The means.
    pub mean: Vec<f32>,
    /// The population standard deviations; 1 for a constant channel.
    pub deviation: Vec<f32>,
}

impl Channels {
    /// The usual means and standard deviations of ImageNet, for red, green and blue. Models trained on ImageNet expect them. They are a
    /// good estimate for other photographs; for exact values [`Images::channels`] decodes all of these.
    ///
    /// ```
    /// assert_eq!(remat_data::Channels::imagenet().mean, [0.485, 0.456, 0.406]);
    /// ```
    pub fn imagenet() -> Channels {
        Channels { mean: vec![0.485, 0.456, 0.406], deviation: vec![0.229, 0.224, 0.225] }
    }
}

impl Images {
    /// Images from their bytes: image by image, row by row, and pixel by pixel with its channels. `shape` is the height, width and number
    /// of channels of an image. There is a label below `classes` for each image.
    ///
    /// # Errors
    /// If a size is 0; if the number of bytes does not fit the labels and the shape; if a label is not below `classes`.
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
        let (pixels, names, notes) = (Pixels::Memory(pixels), Vec::new(), Vec::new());
        Images::of(Inner { pixels, labels, shape, classes, names, notes })
    }

    fn of(inner: Inner) -> Images {
        Images(Arc::new(inner))
    }

    /// Reads the images of a folder, recognised by the file names of known data sets: MNIST and data sets in its format (Fashion-MNIST,
    /// KMNIST), with `train-images-idx3-ubyte` and three more; CIFAR-10 with `data_batch_1.bin` to `data_batch_5.bin` and `test_batch.bin`;
    /// CIFAR-100 with `train.bin` and `test.bin`, by its 100 fine labels. Each file may be compressed, with `.gz` or `.zst` appended to its
    /// name. [`Images::folder`] reads folders of pictures.
    ///
    /// # Errors
    /// If the folder has the files of no known data set, or one cannot be read, is damaged, truncated, or has an invalid label.
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

    /// Reads the images of a file in the IDX format (that of MNIST), an array of bytes `[images, height, width]` or `[images, height,
    /// width, channels]`, with the labels of another file, bytes `[images]` below `classes`. Files whose names end with `.gz` or `.zst` are
    /// decompressed.
    ///
    /// # Errors
    /// If a file cannot be read, is damaged, or has an array of another dtype or rank; if the numbers of images and labels differ, or a
    /// label is not below `classes`.
    #[track_caller]
    pub fn idx(images: impl AsRef<Path>, labels: impl AsRef<Path>, classes: usize) -> Result<Images> {
        let loc = location();
        idx::read(&[images.as_ref().into(), labels.as_ref().into()], classes).map_err(|error| error.at(loc))
    }

    /// Reads the pictures, PNG or JPEG, of a folder with a subfolder for each class, as images of one shape. Needs the feature `image`.
    ///
    /// A picture is decoded when a batch needs it, on all cores, so that memory does not depend on the number of pictures; use
    /// [`Prefetch`](crate::Prefetch) to make batches ahead. It is rotated according to its EXIF orientation, transparent pixels are blended
    /// with white, and grey pictures get three equal channels. Nested subfolders belong to their class; hidden files are not read.
    /// [`Images::notes`] lists what was left out.
    ///
    /// ```
    /// # #[cfg(feature = "image")] {
    /// use remat_data::{Channels, ImageBatches, Images, Pictures};
    ///
    /// let folder = tempfile::tempdir()?;
    /// for (class, colour) in [("night", [0u8, 0, 40]), ("day", [90, 160, 255])] {
    ///     std::fs::create_dir(folder.path().join(class))?;
    ///     let picture = image::RgbImage::from_pixel(40, 30, image::Rgb(colour));
    ///     picture.save(folder.path().join(class).join("1.png"))?;
    /// }
    /// let images = Images::folder(folder.path(), &Pictures::new([24, 24]))?;
    /// assert_eq!(images.class_names(), ["day", "night"]);
    /// let batches = ImageBatches::new(images, 2, 0)?.with_channels(&Channels::imagenet())?.with_flips();
    /// assert_eq!(batches.get(0)?.images.shape()?, [2, 24, 24, 3]);
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If a folder cannot be read, a class has no pictures, or a subfolder is not one of the named classes; if a size is 0, or the number
    /// of channels is not 1 or 3; without the feature. A damaged picture is an error of the batch that has it.
    #[track_caller]
    pub fn folder(folder: impl AsRef<Path>, as_images: &Pictures) -> Result<Images> {
        let loc = location();
        folder::open(folder.as_ref(), as_images).map_err(|error| error.at(loc))
    }

    /// `count` synthetic images of a height, width and number of channels, for use without files. All images of a class have the same
    /// pattern, at different positions and with noise.
    /// Patterns do not depend on the seed, so that images of one seed can test a model trained on those of another. [`Images::notes`] says
    /// that they are synthetic.
    ///
    /// # Errors
    /// If a size, or the number of images or classes, is 0, or there is no memory for the images.
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

    /// The number of classes; all labels are below it.
    pub fn classes(&self) -> usize {
        self.0.classes
    }

    /// The class of each image.
    pub fn labels(&self) -> &[i32] {
        &self.0.labels
    }

    /// The names of the classes by label, if they have names.
    pub fn class_names(&self) -> &[String] {
        &self.0.names
    }

    /// The bytes of an image, row by row and pixel by pixel.
    ///
    /// # Errors
    /// If there is no such image; if its file cannot be read or decoded.
    #[track_caller]
    pub fn pixels(&self, image: usize) -> Result<Cow<'_, [u8]>> {
        let loc = location();
        self.bytes(image).map_err(|error| error.at(loc))
    }

    fn bytes(&self, image: usize) -> Result<Cow<'_, [u8]>> {
        let size = self.0.shape.iter().product::<usize>();
        let start = image.saturating_mul(size);
        match &self.0.pixels {
            Pixels::Files(files) => files.pixels(image).map(Cow::Owned),
            Pixels::Memory(pixels) => {
                let none = || invalid(IMAGES, format!("there is no image {image} of {}", self.len()));
                pixels.get(start..start.saturating_add(size)).map(Cow::Borrowed).ok_or_else(none)
            }
        }
    }

    /// The bytes of several images. Files are decoded on all cores.
    ///
    /// # Errors
    /// The first error of one of them.
    fn several(&self, images: &[usize]) -> Result<Vec<Cow<'_, [u8]>>> {
        let threads = match &self.0.pixels {
            Pixels::Memory(_) => 1,
            Pixels::Files(_) => std::thread::available_parallelism().map_or(1, usize::from),
        };
        let some = |images: &[usize]| images.iter().map(|&image| self.bytes(image)).collect::<Result<Vec<_>>>();
        if threads == 1 {
            return some(images);
        }
        let parts = images.chunks(images.len().div_ceil(threads).max(1));
        let decoded = std::thread::scope(|scope| {
            let running: Vec<_> = parts.map(|part| scope.spawn(move || some(part))).collect();
            running.into_iter().map(ScopedJoinHandle::join).collect::<Vec<_>>()
        });
        let ended = |_| Error::new(ErrorKind::Internal, IMAGES, "a thread that decodes has panicked");
        let parts = decoded.into_iter().map(|part| part.map_err(ended)?).collect::<Result<Vec<_>>>()?;
        Ok(parts.into_iter().flatten().collect())
    }

    /// Messages for the user: which files were left out, and whether the images are synthetic.
    pub fn notes(&self) -> &[String] {
        &self.0.notes
    }

    /// Mean and standard deviation of each channel over all images, with which to normalise these images and the test images. This decodes
    /// all picture files.
    ///
    /// # Errors
    /// If a picture cannot be read or decoded.
    #[track_caller]
    pub fn channels(&self) -> Result<Channels> {
        let (loc, [height, width, channels]) = (location(), self.0.shape);
        let mut sums = vec![(0u64, 0u64); channels];
        let all: Vec<usize> = (0..self.len()).collect();
        for some in all.chunks(TOGETHER) {
            for image in self.several(some).map_err(|error| error.at(loc))? {
                for pixel in image.chunks_exact(channels) {
                    for ((sum, squares), &byte) in sums.iter_mut().zip(pixel) {
                        *sum += u64::from(byte);
                        *squares += u64::from(byte).pow(2);
                    }
                }
            }
        }
        let count = (self.len() * height * width).max(1) as f64;
        let of = |&(sum, squares): &(u64, u64)| {
            let mean = sum as f64 / count;
            let deviation = (squares as f64 / count - mean * mean).max(0.0).sqrt();
            ((mean / 255.0) as f32, if deviation > 0.0 { (deviation / 255.0) as f32 } else { 1.0 })
        };
        let (mean, deviation) = sums.iter().map(of).unzip();
        Ok(Channels { mean, deviation })
    }
}

/// The bytes of this many images.
///
/// # Errors
/// If a size is 0, or the number overflows.
fn size_of(count: usize, shape: [usize; 3]) -> std::result::Result<usize, String> {
    let [height, width, channels] = shape;
    if shape.contains(&0) {
        return Err(format!("images of shape [{height}, {width}, {channels}] are empty"));
    }
    let size = shape.iter().try_fold(count, |size, &dim| size.checked_mul(dim));
    size.ok_or_else(|| format!("{} of shape [{height}, {width}, {channels}] are too large", counted(count, "image")))
}

/// # Errors
/// A message about wrong labels.
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
