//! Folders of pictures: every kind, every way in which they can be wrong, and the batches of them.

use std::fs;
use std::path::Path;

use remat::Result;
use remat_data::{Images, Pictures};

#[track_caller]
fn message<T>(result: Result<T>, folder: &Path) -> String {
    let Err(error) = result else { panic!("no error") };
    let site = error.loc().and_then(|loc| loc.site);
    assert!(site.is_some_and(|site| site.file().ends_with("tests/pictures.rs")), "{error}");
    error.message().replace(folder.to_str().unwrap(), "DIR")
}

#[test]
fn sizes_that_are_none() {
    let folder = tempfile::tempdir().unwrap();
    let open = |pictures: Pictures| message(Images::folder(folder.path(), &pictures), folder.path());
    assert_eq!(open(Pictures::new([0, 4])), "images of shape [0, 4, 3] are empty");
    let channels = open(Pictures { channels: 2, ..Pictures::new([4, 4]) });
    assert_eq!(channels, "pictures have 3 channels or 1 for grey, and not 2");
    #[cfg(target_pointer_width = "64")]
    assert_eq!(
        open(Pictures::new([1, 1 << 32])),
        "images of 1 by 4294967296 pixels are too large: a picture has at most 2^32 rows or columns"
    );
}

#[cfg(not(feature = "image"))]
#[test]
fn without_the_feature() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("cats")).unwrap();
    let said = message(Images::folder(folder.path(), &Pictures::new([4, 4])), folder.path());
    assert_eq!(said, "`DIR` has pictures, which this build does not decode: build it with the feature `image`");
}

#[cfg(feature = "image")]
mod with_decoders {
    use image::{DynamicImage, GrayImage, ImageFormat, Luma, LumaA, Rgb, RgbImage, Rgba, RgbaImage};
    use remat_data::{Channels, Fit, ImageBatch, ImageBatches, Prefetch};

    use super::*;

    /// A folder with pictures of these names.
    fn folder(pictures: &[(&str, DynamicImage)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, picture) in pictures {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            picture.save(path).unwrap();
        }
        folder
    }

    fn plain(width: u32, height: u32, colour: [u8; 3]) -> DynamicImage {
        RgbImage::from_pixel(width, height, Rgb(colour)).into()
    }

    fn open(folder: &Path, size: [usize; 2]) -> Images {
        Images::folder(folder, &Pictures::new(size)).unwrap()
    }

    #[test]
    fn classes_are_subfolders_by_name() {
        let black = || plain(2, 2, [0; 3]);
        let folder = folder(&[
            ("dogs/b.png", black()),
            ("dogs/a/1.PNG", black()),
            ("cats/x.jpg", black()),
            ("cats/x.jpeg", black()),
            ("beside.png", black()),
            ("dogs/.hidden.png", black()),
            (".cache/x.png", black()),
        ]);
        fs::write(folder.path().join("cats/notes.txt"), "x").unwrap();
        let images = open(folder.path(), [2, 2]);
        assert_eq!((images.len(), images.shape(), images.classes()), (4, [2, 2, 3], 2));
        assert_eq!((images.class_names(), images.labels()), (&["cats".into(), "dogs".into()][..], &[0, 0, 1, 1][..]));
        let notes: Vec<String> =
            images.notes().iter().map(|note| note.replace(folder.path().to_str().unwrap(), "DIR")).collect();
        let beside = "1 picture of `DIR` left out, beside the subfolders of the classes";
        assert_eq!(notes, [beside, "1 file of `DIR` left out, which are not PNG or JPEG"]);
        // A folder that tests has the labels of the one that was learnt.
        fs::remove_dir_all(folder.path().join("cats")).unwrap();
        let named = |names: &[&str]| {
            let classes = Some(names.iter().map(ToString::to_string).collect());
            Images::folder(folder.path(), &Pictures { classes, ..Pictures::new([2, 2]) })
        };
        assert_eq!(named(&["cats", "dogs"]).unwrap().labels(), [1, 1]);
        let said = message(named(&["cats", "cows"]), folder.path());
        assert_eq!(said, "`DIR/dogs` is not one of the classes `cats` and `cows`");
    }

    #[test]
    fn folders_without_pictures() {
        let folder = folder(&[("cats/x.png", plain(1, 1, [0; 3]))]);
        let said = |path: &Path| message(Images::folder(path, &Pictures::new([2, 2])), folder.path());
        assert_eq!(
            said(&folder.path().join("cats")),
            "`DIR/cats` has no subfolders: pictures are in one for each class"
        );
        let gone = said(&folder.path().join("none"));
        assert_eq!(gone, "cannot read `DIR/none`: No such file or directory (os error 2)");
        fs::create_dir(folder.path().join("dogs")).unwrap();
        assert_eq!(said(folder.path()), "`DIR/dogs` is a class without pictures: no .png, .jpg, .jpeg file");
        let classes = Some(vec!["cats".to_string(), "dogs".to_string()]);
        let with_names =
            |path: &Path| Images::folder(path, &Pictures { classes: classes.clone(), ..Pictures::new([2, 2]) });
        assert_eq!(with_names(folder.path()).unwrap().labels(), [0]);
        fs::remove_file(folder.path().join("cats/x.png")).unwrap();
        assert_eq!(message(with_names(folder.path()), folder.path()), "`DIR` has no pictures");
    }

    /// Grey, transparent, 16-bit and JPEG pictures become the same kind of image.
    #[test]
    fn all_kinds_of_pixels() {
        let half = Rgba([200, 100, 0, 128]);
        let deep = image::ImageBuffer::from_pixel(2, 2, Rgb([0x8000u16, 0xffff, 0]));
        let folder = folder(&[
            ("a/0 colour.png", plain(2, 2, [10, 20, 30])),
            ("a/1 grey.png", GrayImage::from_pixel(2, 2, Luma([77])).into()),
            ("a/2 half.png", RgbaImage::from_pixel(2, 2, half).into()),
            ("a/3 clear grey.png", image::ImageBuffer::from_pixel(2, 2, LumaA([0u8, 0])).into()),
            ("a/4 deep.png", DynamicImage::ImageRgb16(deep)),
            ("a/5 grey.jpg", GrayImage::from_pixel(2, 2, Luma([77])).into()),
            ("a/6 colour.jpg", plain(2, 2, [200, 200, 200])),
        ]);
        let images = open(folder.path(), [2, 2]);
        let first = |image: usize| images.pixels(image).unwrap()[..3].to_vec();
        assert_eq!(images.pixels(0).unwrap().into_owned(), [10, 20, 30].repeat(4));
        assert_eq!(first(1), [77; 3]);
        // Half of the colour, half of the white behind it.
        assert_eq!(first(2), [227, 177, 127]);
        assert_eq!(first(3), [255; 3]);
        assert_eq!(first(4), [128, 255, 0]);
        let is_near = |image: usize, value: u8| first(image).iter().all(|x| x.abs_diff(value) <= 2);
        assert!(is_near(5, 77) && is_near(6, 200));
        let grey = Images::folder(folder.path(), &Pictures { channels: 1, ..Pictures::new([2, 2]) }).unwrap();
        assert_eq!((grey.shape(), grey.pixels(1).unwrap().into_owned()), ([2, 2, 1], vec![77; 4]));
        assert_eq!(grey.pixels(3).unwrap().into_owned(), vec![255; 4]);
    }

    /// What a file has, its bytes say.
    #[test]
    fn names_may_be_wrong() {
        let folder = folder(&[("a/1.png", plain(2, 2, [1, 2, 3]))]);
        fs::rename(folder.path().join("a/1.png"), folder.path().join("a/1.jpg")).unwrap();
        assert_eq!(open(folder.path(), [1, 1]).pixels(0).unwrap().into_owned(), [1, 2, 3]);
    }

    /// The left half is black and the right one is white; pictures of all sizes become images of one.
    #[test]
    fn sizes_are_cropped_or_stretched() {
        let halves = |width: u32, height: u32| {
            let colour = |x| if x < width / 2 { Rgb([0; 3]) } else { Rgb([255; 3]) };
            DynamicImage::from(RgbImage::from_fn(width, height, |x, _| colour(x)))
        };
        let folder = folder(&[("a/1.png", halves(40, 10)), ("a/2.png", halves(10, 40)), ("a/3.png", halves(4, 8))]);
        for fit in [Fit::Crop, Fit::Stretch] {
            let images = Images::folder(folder.path(), &Pictures { fit, ..Pictures::new([8, 4]) }).unwrap();
            for image in 0..3 {
                let pixels = images.pixels(image).unwrap();
                assert_eq!(pixels.len(), 8 * 4 * 3);
                for row in pixels.chunks(12) {
                    assert!(row[0] < 40 && row[11] > 215, "{fit:?} {image}: {row:?}");
                }
            }
        }
        // A cross in the middle of a wide picture stays in the middle where it is cropped, and its sides go.
        let wide = RgbImage::from_fn(30, 10, |x, _| if (10..20).contains(&x) { Rgb([9; 3]) } else { Rgb([200; 3]) });
        let folder = super::with_decoders::folder(&[("a/1.png", wide.into())]);
        assert_eq!(open(folder.path(), [10, 10]).pixels(0).unwrap().into_owned(), [9; 300]);
        let stretch = Pictures { fit: Fit::Stretch, ..Pictures::new([1, 3]) };
        let images = Images::folder(folder.path(), &stretch).unwrap();
        let pixels = images.pixels(0).unwrap();
        assert!(pixels[0] > 150 && pixels[4] < 60 && pixels[8] > 150, "{pixels:?}");
    }

    #[test]
    fn broken_pictures_are_named() {
        let folder = folder(&[("a/1.png", plain(40, 40, [1, 2, 3])), ("b/2.jpg", plain(40, 40, [1, 2, 3]))]);
        for name in ["a/1.png", "b/2.jpg"] {
            let (path, start) =
                (folder.path().join(name), format!("`DIR/{name}` is not a PNG or JPEG that can be decoded: "));
            let whole = fs::read(&path).unwrap();
            for bytes in [&whole[..whole.len() / 3], &whole[..whole.len() - 40], b"no picture", b""] {
                fs::write(&path, bytes).unwrap();
                let images = open(folder.path(), [4, 4]);
                let batches = ImageBatches::new(images.clone(), 2, 0).unwrap();
                let said = message(batches.get(0), folder.path());
                assert!(said.starts_with(&start), "{said}");
                assert!(message(images.channels(), folder.path()).starts_with(&start));
                assert!(batches.in_order().any(|batch| batch.is_err()));
            }
            fs::write(&path, whole).unwrap();
        }
        let batches = ImageBatches::new(open(folder.path(), [4, 4]), 2, 0).unwrap();
        fs::remove_file(folder.path().join("a/1.png")).unwrap();
        let gone = "cannot read `DIR/a/1.png`: No such file or directory (os error 2)";
        assert_eq!(message(batches.bytes(0), folder.path()), gone);
        let ahead = Prefetch::new(0, 1, move |step| batches.get(step)).unwrap();
        assert_eq!(ahead.next().map(drop).unwrap_err().message().replace(folder.path().to_str().unwrap(), "DIR"), gone);
    }

    #[test]
    fn images_for_which_there_is_no_memory() {
        let folder = folder(&[("a/1.png", plain(40, 40, [1, 2, 3]))]);
        let mut pictures = Pictures::new([1 << 24; 2]);
        for fit in [Fit::Crop, Fit::Stretch] {
            pictures.fit = fit;
            let images = Images::folder(folder.path(), &pictures).unwrap();
            let one = "there is no memory for `DIR/a/1.png` as an image of 16777216 by 16777216 pixels";
            assert_eq!(message(images.pixels(0), folder.path()), one);
            let batches = ImageBatches::new(images, 1, 0).unwrap();
            let all = "there is no memory for a batch of 1 image of shape [16777216, 16777216, 3]";
            assert_eq!(message(batches.get(0), folder.path()), all);
        }
    }

    /// Batches of pictures are those of the same images in memory: their order, crops and flips.
    #[test]
    fn batches_are_those_of_images_in_memory() {
        let picture = |i: u32| RgbImage::from_fn(6, 5, |x, y| Rgb([(40 * x) as u8, (50 * y) as u8, (20 * i) as u8]));
        let names: Vec<String> = (0..9).map(|i| format!("{}/{i}.png", if i < 4 { "a" } else { "b" })).collect();
        let pictures: Vec<_> = names.iter().zip(0..).map(|(name, i)| (name.as_str(), picture(i).into())).collect();
        let folder = folder(&pictures);
        let files = open(folder.path(), [5, 6]);
        let pixels: Vec<u8> = (0..9).flat_map(|i| picture(i).into_raw()).collect();
        let memory = Images::new(pixels, [5, 6, 3], files.labels().to_vec(), 2).unwrap();
        assert_eq!(files.channels().unwrap(), memory.channels().unwrap());
        let of = |images: &Images| {
            let batches = ImageBatches::new(images.clone(), 4, 3).unwrap();
            batches.with_channels(&Channels::imagenet()).unwrap().with_crops(2).unwrap().with_flips()
        };
        let (files, memory) = (of(&files), of(&memory));
        let parts = |batch: ImageBatch| (batch.images.to_vec::<f32>().unwrap(), batch.labels.to_vec::<i32>().unwrap());
        for step in [0, 1, 2, 100, u64::MAX] {
            assert_eq!(parts(files.get(step).unwrap()), parts(memory.get(step).unwrap()));
        }
        for (files, memory) in files.in_order().zip(memory.in_order()) {
            assert_eq!(parts(files.unwrap()), parts(memory.unwrap()));
        }
    }

    /// The picture of a camera that was held upright, as it is meant.
    #[test]
    fn pictures_are_turned_as_their_camera_says() {
        let colour = |x, _| if x < 8 { Rgb([0; 3]) } else { Rgb([255; 3]) };
        let mut jpeg = std::io::Cursor::new(Vec::new());
        RgbImage::from_fn(16, 16, colour).write_to(&mut jpeg, ImageFormat::Jpeg).unwrap();
        let jpeg = jpeg.into_inner();
        // Orientation 6: the first row is the right side.
        let exif = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";
        let length = (exif.len() as u16 + 2).to_be_bytes();
        let turned = [&jpeg[..2], &[0xff, 0xe1], &length, exif, &jpeg[2..]].concat();
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("a")).unwrap();
        fs::write(folder.path().join("a/1.jpg"), turned).unwrap();
        let images = Images::folder(folder.path(), &Pictures { channels: 1, ..Pictures::new([16, 16]) }).unwrap();
        let pixels = images.pixels(0).unwrap();
        assert!(pixels[..16].iter().all(|&x| x < 40) && pixels[15 * 16..].iter().all(|&x| x > 215), "{pixels:?}");
    }
}
