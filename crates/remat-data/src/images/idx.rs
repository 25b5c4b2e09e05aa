//! The IDX format of MNIST. Source: LeCun, Cortes, Burges, "The MNIST database of handwritten digits".

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use remat::Result;
use remat::files::{cannot, wrong};

use super::{IMAGES, Images, Split, check_labels, size_of};
use crate::open::reader;

/// The files of MNIST: images and labels.
pub(super) fn names(split: Split) -> [&'static str; 2] {
    match split {
        Split::Train => ["train-images-idx3-ubyte", "train-labels-idx1-ubyte"],
        Split::Test => ["t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"],
    }
}

/// The images and the labels of two files.
///
/// # Errors
/// As [`Images::idx`].
pub(super) fn read([images, labels]: &[PathBuf; 2], classes: usize) -> Result<Images> {
    let (dims, pixels) = array(images)?;
    let (count, shape) = match dims[..] {
        [count, height, width] => (count, [height, width, 1]),
        [count, height, width, channels] => (count, [height, width, channels]),
        _ => {
            return Err(wrong(
                IMAGES,
                images,
                format!("has an array of rank {}, not images, of rank 3 or 4", dims.len()),
            ));
        }
    };
    size_of(count, shape).map_err(|message| wrong(IMAGES, images, format!("is damaged: {message}")))?;
    let (dims, bytes) = array(labels)?;
    if dims.len() != 1 {
        return Err(wrong(IMAGES, labels, format!("has an array of rank {}, not labels, of rank 1", dims.len())));
    }
    if bytes.len() != count {
        let message = format!("has {} labels, and `{}` has {count} images", bytes.len(), images.display());
        return Err(wrong(IMAGES, labels, message));
    }
    let bytes: Vec<i32> = bytes.into_iter().map(i32::from).collect();
    check_labels(&bytes, classes).map_err(|message| wrong(IMAGES, labels, message))?;
    Ok(Images::checked(pixels, shape, bytes, classes))
}

/// The dimensions and the bytes of an array.
fn array(path: &Path) -> Result<(Vec<usize>, Vec<u8>)> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::UnexpectedEof => wrong(IMAGES, path, "is cut off: it ends inside its header"),
        _ => cannot(IMAGES, "read", path, &error),
    };
    let mut file = reader(path).map_err(|error| cannot(IMAGES, "read", path, &error))?;
    let mut number = || -> Result<[u8; 4]> {
        let mut bytes = [0; 4];
        file.read_exact(&mut bytes).map_err(failed)?;
        Ok(bytes)
    };
    let magic = number()?;
    let [0, 0, kind, rank] = magic else {
        let magic = u32::from_be_bytes(magic);
        return Err(wrong(IMAGES, path, format!("is not an IDX file: it begins with 0x{magic:08x}")));
    };
    if kind != 8 {
        return Err(wrong(IMAGES, path, format!("has elements of type 0x{kind:02x}, not 0x08, bytes")));
    }
    let dims =
        (0..rank).map(|_| number().map(|bytes| u32::from_be_bytes(bytes) as usize)).collect::<Result<Vec<_>>>()?;
    let size = dims.iter().try_fold(1usize, |size, &dim| size.checked_mul(dim));
    let size = size.ok_or_else(|| wrong(IMAGES, path, format!("is damaged: its dimensions are {dims:?}")))?;
    let mut bytes = Vec::new();
    // One byte more, to detect a file that is too long.
    let read = file.take((size as u64).saturating_add(1)).read_to_end(&mut bytes);
    read.map_err(|error| cannot(IMAGES, "read", path, &error))?;
    let has =
        |what: String| Err(wrong(IMAGES, path, format!("{what} the {size} bytes that its dimensions {dims:?} say")));
    match bytes.len() {
        len if len < size => has(format!("is cut off: it has {len} of")),
        len if len > size => has("is damaged: it has more than".into()),
        _ => Ok((dims, bytes)),
    }
}
