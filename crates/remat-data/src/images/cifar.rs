//! The binary files of CIFAR. Source: Krizhevsky, "Learning multiple layers of features from tiny images", 2009.

use std::io::Read;
use std::path::Path;

use remat::Result;
use remat::files::{cannot, wrong};

use super::{IMAGES, Images, Split, check_labels, file};
use crate::open::reader;

/// Height and width.
const SIDE: usize = 32;

/// The files of CIFAR-10; the last one is the test set.
pub(super) const NAMES_10: [&str; 6] = [
    "data_batch_1.bin",
    "data_batch_2.bin",
    "data_batch_3.bin",
    "data_batch_4.bin",
    "data_batch_5.bin",
    "test_batch.bin",
];

/// The files of CIFAR-100; the last one is the test set.
pub(super) const NAMES_100: [&str; 2] = ["train.bin", "test.bin"];

/// One of the two data sets.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    names: &'static [&'static str],
    /// The bytes of labels before an image; the last one is read. In CIFAR-100 the first is the superclass.
    labels: usize,
    classes: usize,
}

pub(super) const TEN: Kind = Kind { names: &NAMES_10, labels: 1, classes: 10 };
pub(super) const HUNDRED: Kind = Kind { names: &NAMES_100, labels: 2, classes: 100 };

/// The images of a folder.
///
/// # Errors
/// If a file cannot be read, is truncated, or has an invalid label.
pub(super) fn read(folder: &Path, split: Split, kind: Kind) -> Result<Images> {
    let (train, test) = kind.names.split_at(kind.names.len() - 1);
    let names = if split == Split::Train { train } else { test };
    let (mut pixels, mut labels) = (Vec::new(), Vec::new());
    let (plane, record) = (SIDE * SIDE, kind.labels + 3 * SIDE * SIDE);
    for name in names {
        let (path, mut bytes) = (file(folder, name), Vec::new());
        let read = reader(&path).and_then(|mut file| file.read_to_end(&mut bytes));
        read.map_err(|error| cannot(IMAGES, "read", &path, &error))?;
        if bytes.is_empty() || bytes.len() % record != 0 {
            let message = format!(
                "is cut off or damaged: it has {} bytes, not a multiple of {record}, those of an image",
                bytes.len()
            );
            return Err(wrong(IMAGES, &path, message));
        }
        let first = labels.len();
        for image in bytes.chunks_exact(record) {
            let (label, planes) = image.split_at(kind.labels);
            labels.extend(label.last().copied().map(i32::from));
            // From planes of colors to interleaved pixels.
            pixels.extend((0..plane).flat_map(|at| [planes[at], planes[plane + at], planes[2 * plane + at]]));
        }
        check_labels(&labels[first..], kind.classes).map_err(|message| wrong(IMAGES, &path, message))?;
    }
    Ok(Images::checked(pixels, [SIDE, SIDE, 3], labels, kind.classes))
}
