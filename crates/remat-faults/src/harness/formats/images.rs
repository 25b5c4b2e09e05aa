//! Data sets of images, and pictures.

use std::fs;
use std::path::Path;

use anyhow::Result;
use remat_data::{Images, Split};

use super::{Format, Place, Read, Rule, hash};
use crate::harness::work::Work;

pub(super) fn formats() -> Vec<Format> {
    let (rule, place, writes) = (Rule::Formed, Place::File, false);
    let mut formats = vec![
        Format { name: "IDX", rule, place, writes, make: make_idx, read: read_set },
        Format { name: "CIFAR", rule, place, writes, make: make_cifar, read: read_set },
    ];
    formats.extend(pictures());
    formats
}

fn make_idx(_: &Work, folder: &Path) -> Result<()> {
    let pixels: Vec<u8> = (0..60).collect();
    let images = [&[0, 0, 8, 3, 0, 0, 0, 5, 0, 0, 0, 4, 0, 0, 0, 3][..], &pixels].concat();
    fs::write(folder.join("train-images-idx3-ubyte"), images)?;
    Ok(fs::write(folder.join("train-labels-idx1-ubyte"), [0, 0, 8, 1, 0, 0, 0, 5, 1, 2, 3, 4, 9])?)
}

fn make_cifar(_: &Work, folder: &Path) -> Result<()> {
    for batch in 1..=5u8 {
        let image = |label: u8| [vec![label], vec![batch; 3072]].concat();
        fs::write(folder.join(format!("data_batch_{batch}.bin")), [image(batch), image(9)].concat())?;
    }
    Ok(())
}

fn read_set(_: &Work, folder: &Path) -> Read {
    Read::of(Images::open(folder, Split::Train).and_then(|images| value(&images)))
}

/// All pixels and labels.
fn value(images: &Images) -> remat::Result<String> {
    let mut bytes = Vec::new();
    for image in 0..images.len() {
        bytes.extend_from_slice(&images.pixels(image)?);
    }
    Ok(format!("{} images of {:?}, {:?}, {}", images.len(), images.shape(), images.labels(), hash(&bytes)))
}

#[cfg(not(feature = "image"))]
fn pictures() -> Vec<Format> {
    Vec::new()
}

#[cfg(feature = "image")]
fn pictures() -> Vec<Format> {
    use image::{DynamicImage, Rgb, RgbImage, Rgba, RgbaImage};
    use remat_data::Pictures;

    fn save(folder: &Path, name: &str, picture: &DynamicImage) -> Result<()> {
        fs::create_dir_all(folder.join("class"))?;
        Ok(picture.save(folder.join("class").join(name))?)
    }
    fn colours(x: u32, y: u32) -> [u8; 3] {
        [(x * 13) as u8, (y * 29) as u8, (x * y * 7) as u8]
    }
    fn rgb() -> DynamicImage {
        RgbImage::from_fn(20, 15, |x, y| Rgb(colours(x, y))).into()
    }
    fn make_png(_: &Work, folder: &Path) -> Result<()> {
        let alpha = RgbaImage::from_fn(9, 12, |x, y| Rgba([0, (x * 20) as u8, 0, (y * 20) as u8]));
        save(folder, "a.png", &rgb())?;
        save(folder, "b.png", &alpha.into())?;
        save(folder, "c.png", &rgb().into_luma8().into())
    }
    fn make_jpeg(_: &Work, folder: &Path) -> Result<()> {
        save(folder, "a.jpg", &rgb())
    }
    fn read(_: &Work, folder: &Path) -> Read {
        Read::of(Images::folder(folder, &Pictures::new([8, 10])).and_then(|images| value(&images)))
    }
    let (place, writes) = (Place::File, false);
    vec![
        Format { name: "PNG", rule: Rule::Noticed, place, writes, make: make_png, read },
        Format { name: "JPEG", rule: Rule::Formed, place, writes, make: make_jpeg, read },
    ]
}
