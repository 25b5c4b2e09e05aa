//! Folders of pictures, one for each class.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use remat::Result;
use remat::files::{cannot, wrong};
use remat::ir::counted;

use super::{IMAGES, Images, Inner, Pixels, size_of};
use crate::failure::{invalid, listed};

/// The extensions of pictures.
const PICTURES: [&str; 3] = ["png", "jpg", "jpeg"];

/// How pictures of any size become images of one shape.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Fit {
    /// Scaled to cover the image, then cropped at the centre: nothing is distorted.
    #[default]
    Crop,
    /// Scaled to the image's height and width independently.
    Stretch,
}

/// The shape and classes of the images that [`Images::folder`] makes from pictures.
///
/// ```
/// use remat_data::{Fit, Pictures};
/// let grey = Pictures { channels: 1, fit: Fit::Stretch, ..Pictures::new([28, 28]) };
/// assert_eq!((grey.size, grey.classes), ([28, 28], None));
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Pictures {
    /// Height and width.
    pub size: [usize; 2],
    /// 3 for red, green and blue, 1 for grey.
    pub channels: usize,
    /// How pictures of other sizes are fitted.
    pub fit: Fit,
    /// The names of the classes in the order of their labels. Use those of the training folder for a test folder, which may then lack some.
    /// `None` means the sorted names of the subfolders, each of which must have pictures.
    pub classes: Option<Vec<String>>,
}

impl Pictures {
    /// Images in colour of a height and a width.
    pub fn new(size: [usize; 2]) -> Pictures {
        Pictures { size, channels: 3, fit: Fit::Crop, classes: None }
    }
}

/// Pictures that are read on request.
#[derive(Debug)]
pub(super) struct Files {
    paths: Vec<PathBuf>,
    #[cfg_attr(not(feature = "image"), expect(dead_code, reason = "nothing is decoded"))]
    pub(super) as_images: Pictures,
}

impl Files {
    /// The bytes of an image.
    ///
    /// # Errors
    /// If the picture cannot be read.
    pub(super) fn pixels(&self, image: usize) -> Result<Vec<u8>> {
        let path = self.paths.get(image).ok_or_else(|| invalid(IMAGES, format!("there is no image {image}")))?;
        self.decoded(path)
    }

    #[cfg(feature = "image")]
    fn decoded(&self, path: &Path) -> Result<Vec<u8>> {
        super::decode::picture(path, &self.as_images)
    }

    #[cfg(not(feature = "image"))]
    fn decoded(&self, path: &Path) -> Result<Vec<u8>> {
        let message = "cannot be read by this build, which decodes no pictures: build it with the feature `image`";
        Err(wrong(IMAGES, path, message))
    }
}

/// See [`Images::folder`].
///
/// # Errors
/// Those of [`Images::folder`].
pub(super) fn open(folder: &Path, as_images: &Pictures) -> Result<Images> {
    let [height, width] = as_images.size;
    let shape = [height, width, as_images.channels];
    size_of(1, shape).map_err(|message| invalid(IMAGES, message))?;
    if as_images.size.iter().any(|&side| u32::try_from(side).is_err()) {
        let message =
            format!("images of {height} by {width} pixels are too large: a picture has at most 2^32 rows or columns");
        return Err(invalid(IMAGES, message));
    }
    if !matches!(as_images.channels, 1 | 3) {
        let message = format!("pictures have 3 channels or 1 for grey, and not {}", as_images.channels);
        return Err(invalid(IMAGES, message));
    }
    if cfg!(not(feature = "image")) {
        let message = "has pictures, which this build does not decode: build it with the feature `image`";
        return Err(wrong(IMAGES, folder, message));
    }
    let mut notes = Vec::new();
    let found = subfolders(folder, &mut notes).map_err(|error| cannot(IMAGES, "read", folder, &error))?;
    let names = as_images.classes.clone().unwrap_or_else(|| found.keys().cloned().collect());
    if names.is_empty() {
        return Err(wrong(IMAGES, folder, "has no subfolders: pictures are in one for each class"));
    }
    let (mut paths, mut labels, mut left_out) = (Vec::new(), Vec::new(), 0);
    for (name, folder) in &found {
        let Some(label) = names.iter().position(|class| class == name) else {
            let classes = listed(names.iter().map(String::as_str));
            return Err(wrong(IMAGES, folder, format!("is not one of the classes {classes}")));
        };
        let first = paths.len();
        collect(folder, &mut paths, &mut left_out).map_err(|error| cannot(IMAGES, "read", folder, &error))?;
        if paths.len() == first && as_images.classes.is_none() {
            let kinds = PICTURES.map(|kind| format!(".{kind}")).join(", ");
            return Err(wrong(IMAGES, folder, format!("is a class without pictures: no {kinds} file")));
        }
        labels.resize(paths.len(), i32::try_from(label).unwrap_or(i32::MAX));
    }
    if paths.is_empty() {
        return Err(wrong(IMAGES, folder, "has no pictures"));
    }
    if left_out > 0 {
        notes.push(format!(
            "{} of `{}` left out, which are not PNG or JPEG",
            counted(left_out, "file"),
            folder.display()
        ));
    }
    let classes = names.len();
    let pixels = Pixels::Files(Files { paths, as_images: as_images.clone() });
    Ok(Images::of(Inner { pixels, labels, shape, classes, names, notes }))
}

/// The subfolders of a folder by name, including links to folders.
fn subfolders(folder: &Path, notes: &mut Vec<String>) -> io::Result<BTreeMap<String, PathBuf>> {
    let (mut found, mut beside) = (BTreeMap::new(), 0);
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with('.') {
            continue;
        }
        if fs::metadata(&path)?.is_dir() {
            found.insert(name, path);
        } else {
            beside += usize::from(is_picture(&path));
        }
    }
    if beside > 0 {
        let (pictures, shown) = (counted(beside, "picture"), folder.display());
        notes.push(format!("{pictures} of `{shown}` left out, beside the subfolders of the classes"));
    }
    Ok(found)
}

/// The pictures below a folder in the order of their paths. Links to files are followed; links to folders, which may form loops, are not.
fn collect(folder: &Path, paths: &mut Vec<PathBuf>, left_out: &mut usize) -> io::Result<()> {
    let mut entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::path);
    for entry in entries {
        let path = entry.path();
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        if entry.file_type()?.is_dir() {
            collect(&path, paths, left_out)?;
        } else if is_picture(&path) {
            paths.push(path);
        } else {
            *left_out += 1;
        }
    }
    Ok(())
}

fn is_picture(path: &Path) -> bool {
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
    extension.is_some_and(|extension| PICTURES.contains(&extension.as_str()))
}
