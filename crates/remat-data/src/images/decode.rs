//! Pictures as pixels, by the crate `image`.

use std::fmt::Display;
use std::fs;
use std::io::{self, Cursor};
use std::path::Path;

use image::imageops::FilterType;
use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageReader, Limits};
use remat::files::{cannot, wrong};
use remat::{Error, Result};

use super::{Fit, IMAGES, Pictures};
use crate::failure::expect_memory;

/// Decodes a picture to the bytes of an image, row by row and pixel by pixel. The format is detected from the content, not from the name.
/// The picture is rotated according to its EXIF orientation, and transparent pixels are blended with white.
///
/// # Errors
/// If the file cannot be read or decoded.
pub(super) fn picture(path: &Path, as_image: &Pictures) -> Result<Vec<u8>> {
    let damaged = |error: &dyn Display| -> Error {
        let why = error.to_string();
        wrong(IMAGES, path, format!("is not a PNG or JPEG that can be decoded: {}", why.trim()))
    };
    let failed = |error: io::Error| cannot(IMAGES, "read", path, &error);
    let bytes = fs::read(path).map_err(failed)?;
    if is_cut_off(&bytes) {
        return Err(damaged(&"it ends inside its pixels"));
    }
    let reader = ImageReader::new(Cursor::new(&bytes)).with_guessed_format().map_err(failed)?;
    let mut decoder = reader.into_decoder().map_err(|error| damaged(&error))?;
    let mut limits = Limits::default();
    limits.reserve(decoder.total_bytes()).map_err(|error| damaged(&error))?;
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let mut picture = DynamicImage::from_decoder(decoder).map_err(|error| damaged(&error))?;
    picture.apply_orientation(orientation);
    if picture.color().has_alpha() {
        picture = on_white(&picture);
    }
    expect_memory(IMAGES, || shown(path, as_image), scratch(&picture, as_image))?;
    let picture = fitted(picture, as_image);
    Ok(if as_image.channels == 1 { picture.into_luma8().into_raw() } else { picture.into_rgb8().into_raw() })
}

/// Whether a JPEG is truncated; the decoder would invent the missing pixels.
fn is_cut_off(bytes: &[u8]) -> bool {
    if !bytes.starts_with(&[0xff, 0xd8]) {
        return false;
    }
    let mut rest = &bytes[2..];
    loop {
        // Segments before the pixels have a length. Among the pixels, this byte never follows 0xff.
        rest = match rest {
            [0xff, 0xff, ..] => &rest[1..],
            [0xff, 0xda, pixels @ ..] => return !pixels.windows(2).any(|pair| pair == [0xff, 0xd9]),
            [0xff, _, high, low, ..] => {
                let length = usize::from(u16::from_be_bytes([*high, *low]));
                rest.get(2 + length..).unwrap_or_default()
            }
            _ => return false,
        };
    }
}

/// The bytes that resizing takes at most: four f32 for each pixel of the result, and of the picture that has the result's height alone; or
/// its width. `None` if they cannot be counted.
fn scratch(picture: &DynamicImage, as_image: &Pictures) -> Option<usize> {
    let [height, width] = as_image.size;
    let columns = width.checked_add(usize::try_from(picture.width()).ok()?)?;
    height.checked_mul(columns)?.checked_mul(16)
}

fn shown(path: &Path, as_image: &Pictures) -> String {
    format!("`{}` as an image of {} by {} pixels", path.display(), as_image.size[0], as_image.size[1])
}

/// Resizes the picture to the size of the image, by averaging the pixels that each new pixel covers (a triangle filter).
fn fitted(picture: DynamicImage, as_image: &Pictures) -> DynamicImage {
    // Larger sides are rejected before.
    let [height, width] = as_image.size.map(|size| u32::try_from(size).unwrap_or(u32::MAX));
    if (picture.height(), picture.width()) == (height, width) {
        return picture;
    }
    match as_image.fit {
        // Cropped first: a narrow picture would become far larger than the image.
        Fit::Crop => centre(&picture, height, width).resize_exact(width, height, FilterType::Triangle),
        Fit::Stretch => picture.resize_exact(width, height, FilterType::Triangle),
    }
}

/// The largest centred part of a picture with the proportions of an image; at least one pixel.
fn centre(picture: &DynamicImage, height: u32, width: u32) -> DynamicImage {
    let (rows, columns) = (u64::from(picture.height()), u64::from(picture.width()));
    let (height, width) = (u64::from(height), u64::from(width));
    // Sides of pictures are u32, so that no product overflows; rounded to the nearest pixel.
    let scaled = |side: u64, of: u64, by: u64| ((side * of + by / 2) / by.max(1)).max(1);
    let (kept_rows, kept_columns) = if columns * height > rows * width {
        (rows, scaled(rows, width, height).min(columns))
    } else {
        (scaled(columns, height, width).min(rows), columns)
    };
    let pixels = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    let (left, top) = ((columns - kept_columns) / 2, (rows - kept_rows) / 2);
    picture.crop_imm(pixels(left), pixels(top), pixels(kept_columns), pixels(kept_rows))
}

/// The picture blended with white.
fn on_white(picture: &DynamicImage) -> DynamicImage {
    let mut pixels = picture.to_rgba8();
    for pixel in pixels.pixels_mut() {
        let alpha = u32::from(pixel[3]);
        for channel in &mut pixel.0[..3] {
            let mixed = (u32::from(*channel) * alpha + 255 * (255 - alpha) + 127) / 255;
            *channel = u8::try_from(mixed).unwrap_or(u8::MAX);
        }
        pixel[3] = 255;
    }
    DynamicImage::ImageRgba8(pixels)
}
