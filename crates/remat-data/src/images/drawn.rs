//! Synthetic images.

use remat::ir::counted;

use super::{Images, Inner, Pixels, size_of};
use crate::shuffle::mixed;

/// The cells of a pattern, in each direction.
const CELLS: usize = 4;

/// See [`Images::drawn`].
///
/// # Errors
/// A message about a wrong argument.
pub(super) fn images(count: usize, shape: [usize; 3], classes: usize, seed: u64) -> Result<Images, String> {
    let size = size_of(count, shape)?;
    if count == 0 || classes == 0 || i32::try_from(classes).is_err() {
        return Err(format!("{count} images of {classes} classes cannot be drawn"));
    }
    let [height, width, channels] = shape;
    let mut pixels = Vec::new();
    let has_memory = pixels.try_reserve_exact(size).is_ok();
    if !has_memory {
        return Err(format!("there is no memory for {} of shape {shape:?}", counted(count, "image")));
    }
    let labels: Vec<i32> = (0..count).map(|image| (image % classes) as i32).collect();
    for (image, &label) in labels.iter().enumerate() {
        let key = mixed(mixed(seed) ^ image as u64);
        // Shifted by at most an eighth of the image, so that most of a pattern stays in its place.
        let offset = |shift: u32, size: usize| (key >> shift) as usize % (size / 8 + 1);
        let (down, right) = (offset(0, height), offset(20, width));
        for row in 0..height {
            let y = (row + down) % height * CELLS / height;
            for column in 0..width {
                let x = (column + right) % width * CELLS / width;
                for channel in 0..channels {
                    let cell = ((label as usize * CELLS + y) * CELLS + x) * channels + channel;
                    let level = 64 + mixed(mixed(cell as u64)) % 128;
                    let noise = mixed(key ^ mixed(((row * width + column) * channels + channel) as u64)) % 64;
                    pixels.push((level + noise - 32) as u8);
                }
            }
        }
    }
    let notes = vec!["the images are synthetic: they are not from a data set".to_string()];
    let (pixels, names) = (Pixels::Memory(pixels), Vec::new());
    Ok(Images::of(Inner { pixels, labels, shape, classes, names, notes }))
}
