//! Images from files, every way in which these can be wrong, and batches.

use std::fs;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use remat::Result;
use remat_data::{Batches, Channels, ImageBatch, ImageBatches, Images, Prefetch, Split, Tokens};
use tempfile::TempDir;

#[track_caller]
fn message<T>(result: Result<T>, folder: &TempDir) -> String {
    let Err(error) = result else { panic!("no error") };
    assert!(
        error.loc().and_then(|loc| loc.site).is_some_and(|site| site.file().ends_with("tests/images.rs")),
        "{error}"
    );
    error.message().replace(folder.path().to_str().unwrap(), "DIR")
}

/// An array in the IDX format.
fn idx(dims: &[u32], bytes: &[u8]) -> Vec<u8> {
    let header = [0, 0, 8, dims.len() as u8];
    let dims = dims.iter().flat_map(|dim| dim.to_be_bytes());
    header.into_iter().chain(dims).chain(bytes.iter().copied()).collect()
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn pixels_of(images: &Images, image: usize) -> Vec<u8> {
    images.pixels(image).unwrap().into_owned()
}

fn write(folder: &TempDir, files: &[(&str, &[u8])]) {
    for (name, bytes) in files {
        fs::write(folder.path().join(name), bytes).unwrap();
    }
}

#[test]
fn files_of_mnist() {
    let folder = tempfile::tempdir().unwrap();
    let pixels: Vec<u8> = (0..12).collect();
    let files: [(&str, &[u8]); 4] = [
        ("train-images-idx3-ubyte", &idx(&[2, 2, 3], &pixels)),
        ("train-labels-idx1-ubyte.gz", &gzipped(&idx(&[2], &[9, 0]))),
        ("t10k-images-idx3-ubyte.gz", &gzipped(&idx(&[1, 2, 3], &pixels[6..]))),
        ("t10k-labels-idx1-ubyte", &idx(&[1], &[3])),
    ];
    write(&folder, &files);
    let train = Images::open(folder.path(), Split::Train).unwrap();
    assert_eq!((train.len(), train.shape(), train.classes()), (2, [2, 3, 1], 10));
    assert_eq!((pixels_of(&train, 0), pixels_of(&train, 1)), (pixels[..6].to_vec(), pixels[6..].to_vec()));
    assert_eq!((train.labels(), train.notes().len(), train.class_names().len()), (&[9, 0][..], 0, 0));
    for image in [2, usize::MAX] {
        assert_eq!(message(train.pixels(image), &folder), format!("there is no image {image} of 2"));
    }
    let test = Images::open(folder.path(), Split::Test).unwrap();
    assert_eq!((pixels_of(&test, 0), test.labels()), (pixels[6..].to_vec(), &[3][..]));
    // Images with channels; none at all.
    write(&folder, &[("a", &idx(&[1, 2, 2, 3], &pixels)), ("b", &idx(&[1], &[0])), ("c", &idx(&[0, 2, 2], &[]))]);
    let of = |name: &str| folder.path().join(name);
    assert_eq!(Images::idx(of("a"), of("b"), 1).unwrap().shape(), [2, 2, 3]);
    write(&folder, &[("b", &idx(&[0], &[]))]);
    assert!(Images::idx(of("c"), of("b"), 1).unwrap().is_empty());
}

#[test]
fn files_of_idx_that_are_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let of = |images: &[u8], labels: &[u8]| {
        write(&folder, &[("i", images), ("l", labels)]);
        message(Images::idx(folder.path().join("i"), folder.path().join("l"), 3), &folder)
    };
    let (images, labels) = (idx(&[2, 1, 2], &[1, 2, 3, 4]), idx(&[2], &[0, 2]));
    let too_many = [images.clone(), vec![0]].concat();
    for (file, expected) in [
        (b"PNG or so".to_vec(), "is not an IDX file: it begins with 0x504e4720"),
        (vec![], "is cut off: it ends inside its header"),
        (images[..10].to_vec(), "is cut off: it ends inside its header"),
        (images[..18].to_vec(), "is cut off: it has 2 of the 4 bytes that its dimensions [2, 1, 2] say"),
        (too_many, "is damaged: it has more than the 4 bytes that its dimensions [2, 1, 2] say"),
        (vec![0, 0, 13, 0], "has elements of type 0x0d, not 0x08, bytes"),
        (idx(&[4], &[1, 2, 3, 4]), "has an array of rank 1, not images, of rank 3 or 4"),
        (idx(&[2, 0, 2], &[]), "is damaged: images of shape [0, 2, 1] are empty"),
        (idx(&[u32::MAX; 3], &[]), "is damaged: its dimensions are [4294967295, 4294967295, 4294967295]"),
    ] {
        assert_eq!(of(&file, &labels), format!("`DIR/i` {expected}"));
    }
    assert_eq!(of(&images, &images), "`DIR/l` has an array of rank 3, not labels, of rank 1");
    assert_eq!(of(&images, &idx(&[3], &[0; 3])), "`DIR/l` has 3 labels, and `DIR/i` has 2 images");
    assert_eq!(of(&images, &idx(&[2], &[0, 3])), "`DIR/l` has the label 3 for image 1, and the number of classes is 3");
    let gone = message(Images::idx(folder.path().join("none"), folder.path().join("l"), 3), &folder);
    assert_eq!(gone, "cannot read `DIR/none`: No such file or directory (os error 2)");
    fs::write(folder.path().join("i.gz"), &gzipped(&images)[..20]).unwrap();
    let cut = message(Images::idx(folder.path().join("i.gz"), folder.path().join("l"), 3), &folder);
    assert!(cut.contains("`DIR/i.gz`"), "{cut}");
}

/// Records of CIFAR: labels, and three planes whose pixels are told apart.
fn records(labels: &[&[u8]]) -> Vec<u8> {
    let planes = (0..3072).map(|i| (i % 1024 % 64 + i / 1024 * 64) as u8);
    labels.iter().flat_map(|labels| labels.iter().copied().chain(planes.clone())).collect()
}

#[test]
fn files_of_cifar() {
    let folder = tempfile::tempdir().unwrap();
    for i in 1..=5u8 {
        write(&folder, &[(&format!("data_batch_{i}.bin"), &records(&[&[i], &[0]]))]);
    }
    let train = Images::open(folder.path(), Split::Train).unwrap();
    assert_eq!((train.len(), train.shape(), train.classes()), (10, [32, 32, 3], 10));
    assert_eq!(train.labels(), [1, 0, 2, 0, 3, 0, 4, 0, 5, 0]);
    assert_eq!(pixels_of(&train, 9)[..6], [0, 64, 128, 1, 65, 129]);
    let gone = message(Images::open(folder.path(), Split::Test), &folder);
    assert_eq!(gone, "cannot read `DIR/test_batch.bin`: No such file or directory (os error 2)");
    write(&folder, &[("test_batch.bin", &records(&[&[9], &[10]]))]);
    let class = message(Images::open(folder.path(), Split::Test), &folder);
    assert_eq!(class, "`DIR/test_batch.bin` has the label 10 for image 1, and the number of classes is 10");
    for len in [0, 3072] {
        write(&folder, &[("data_batch_3.bin", &records(&[&[9]])[..len])]);
        let cut = message(Images::open(folder.path(), Split::Train), &folder);
        let expected = format!("is cut off or damaged: it has {len} bytes, not a multiple of 3073, those of an image");
        assert_eq!(cut, format!("`DIR/data_batch_3.bin` {expected}"));
    }

    let folder = tempfile::tempdir().unwrap();
    let expected =
        "`DIR` has no images: none of the files `t10k-images-idx3-ubyte`, `data_batch_1.bin` and `train.bin`";
    assert_eq!(message(Images::open(folder.path(), Split::Test), &folder), expected);
    write(&folder, &[("train.bin.gz", &gzipped(&records(&[&[19, 99]]))), ("test.bin", &records(&[&[1, 100]]))]);
    let train = Images::open(folder.path(), Split::Train).unwrap();
    assert_eq!((train.labels(), train.classes(), pixels_of(&train, 0)[4]), (&[99][..], 100, 65));
    let class = message(Images::open(folder.path(), Split::Test), &folder);
    assert_eq!(class, "`DIR/test.bin` has the label 100 for image 0, and the number of classes is 100");
}

#[test]
fn arguments_that_are_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let new = |pixels, shape, labels: &[i32]| message(Images::new(vec![0; pixels], shape, labels.to_vec(), 1), &folder);
    assert_eq!(new(4, [2, 2, 0], &[0]), "images of shape [2, 2, 0] are empty");
    assert_eq!(new(4, [2, 2, 1], &[0, 0]), "2 images of shape [2, 2, 1] have 8 bytes, not 4");
    assert_eq!(new(4, [2, 2, 1], &[-1]), "it has the label -1 for image 0, and the number of classes is 1");
    assert_eq!(new(4, [usize::MAX, 2, 1], &[0]), format!("1 image of shape [{}, 2, 1] are too large", usize::MAX));
    let drawn = |count, classes| message(Images::drawn(count, [2, 2, 1], classes, 0), &folder);
    assert_eq!(drawn(0, 1), "0 images of 1 classes cannot be drawn");
    assert_eq!(drawn(1, 0), "1 images of 0 classes cannot be drawn");
    let images = Images::drawn(4, [2, 3, 1], 2, 0).unwrap();
    let none = Images::new(vec![], [2, 2, 1], vec![], 1).unwrap();
    assert_eq!(message(ImageBatches::new(images.clone(), 0, 0), &folder), "a batch of 0 images of 4 is empty");
    assert_eq!(message(ImageBatches::new(none, 1, 0), &folder), "a batch of 1 images of 0 is empty");
    let batches = ImageBatches::new(images, 1, 0).unwrap();
    let border = "a border of 2 pixels is not smaller than images of 2 by 3";
    assert_eq!(message(batches.clone().with_crops(2), &folder), border);
    let channels = |mean: &[f32], deviation: &[f32]| {
        let channels = Channels { mean: mean.into(), deviation: deviation.into() };
        message(batches.clone().with_channels(&channels), &folder)
    };
    assert_eq!(channels(&[0.5, 0.5], &[1.0]), "there are 2 means and 1 standard deviations for 1 channels");
    let cannot = "values cannot be normalised by a mean of";
    assert_eq!(channels(&[0.5], &[0.0]), format!("{cannot} 0.5 and a standard deviation of 0"));
    assert_eq!(channels(&[f32::NAN], &[1.0]), format!("{cannot} NaN and a standard deviation of 1"));
}

#[test]
fn batches_for_which_there_is_no_memory() {
    let folder = tempfile::tempdir().unwrap();
    let images = || Images::new((0..8).collect(), [2, 2, 1], vec![0, 1], 2).unwrap();
    for batch in [usize::MAX, usize::MAX / 2, 1 << 50] {
        let batches = ImageBatches::new(images(), batch, 0).unwrap();
        let expected = format!("there is no memory for a batch of {batch} images of shape [2, 2, 1]");
        assert_eq!(message(batches.get(0), &folder), expected);
        assert_eq!(message(batches.bytes(7), &folder), expected);
        // Those that there are.
        let all: Vec<ImageBatch> = batches.in_order().collect::<Result<_>>().unwrap();
        assert_eq!(all[0].labels.to_vec::<i32>().unwrap(), [0, 1]);
    }
    let drawn = message(Images::drawn(1 << 50, [8, 8, 3], 10, 0), &folder);
    assert_eq!(drawn, format!("there is no memory for {} images of shape [8, 8, 3]", 1u64 << 50));
    let tokens = Tokens::new(&[1, 2, 3], 4).unwrap();
    for batch in [usize::MAX, 1 << 50] {
        let error = message(Batches::new(tokens.clone(), [batch, 2], 0).unwrap().get(3), &folder);
        assert_eq!(error, format!("there is no memory for a batch of {batch} sequences of 2 tokens"));
    }
}

fn floats(batch: &ImageBatch) -> Vec<f32> {
    batch.images.to_vec().unwrap()
}

fn bytes(batch: &ImageBatch) -> Vec<u8> {
    batch.images.to_vec().unwrap()
}

#[test]
fn normalised_images_have_mean_0_and_deviation_1() {
    let images = Images::drawn(50, [8, 8, 3], 5, 1).unwrap();
    let channels = images.channels().unwrap();
    let batches = ImageBatches::new(images.clone(), 50, 0).unwrap().with_channels(&channels).unwrap();
    let all = floats(&batches.get(0).unwrap());
    for channel in 0..3 {
        let of: Vec<f64> = all.iter().skip(channel).step_by(3).map(|&x| x.into()).collect();
        let mean = of.iter().sum::<f64>() / of.len() as f64;
        let square = of.iter().map(|x| x * x).sum::<f64>() / of.len() as f64;
        assert!(mean.abs() < 1e-5 && (square - 1.0).abs() < 1e-5, "{mean} {square}");
    }
    let flat = Images::new(vec![51; 4], [2, 2, 1], vec![0], 1).unwrap();
    assert_eq!(flat.channels().unwrap(), Channels { mean: vec![0.2], deviation: vec![1.0] });
    assert_eq!(floats(&ImageBatches::new(flat, 1, 0).unwrap().get(0).unwrap()), [0.2; 4]);
}

#[test]
fn each_image_once_in_an_epoch_by_seed_and_step_alone() {
    let pixels = (0..60).collect::<Vec<u8>>();
    let images = Images::new(pixels.clone(), [1, 2, 1], (0..30).collect(), 30).unwrap();
    let batches = ImageBatches::new(images.clone(), 4, 3).unwrap();
    let labels = |batch: &ImageBatch| batch.labels.to_vec::<i32>().unwrap();
    // Fifteen batches of four are two epochs of thirty.
    let order: Vec<i32> = (0..15).flat_map(|step| labels(&batches.get(step).unwrap())).collect();
    let (first, second) = order.split_at(30);
    assert_ne!(first, second);
    for epoch in [first, second] {
        let mut sorted = epoch.to_vec();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..30).collect::<Vec<i32>>());
    }
    for step in [0, 7, u64::MAX] {
        let batch = batches.bytes(step).unwrap();
        let expected: Vec<u8> =
            labels(&batch).iter().flat_map(|&label| [2 * label as u8, 2 * label as u8 + 1]).collect();
        assert_eq!(bytes(&batch), expected);
    }
    let changed = batches.clone().with_flips();
    let direct: Vec<Vec<f32>> = (0..9).map(|step| floats(&changed.get(step).unwrap())).collect();
    let ahead = Prefetch::new(5, 2, move |step| changed.get(step)).unwrap();
    for expected in &direct[5..] {
        assert_eq!(&floats(&ahead.next().unwrap()), expected);
    }
    assert_ne!(labels(&ImageBatches::new(images, 4, 4).unwrap().get(0).unwrap()), labels(&batches.get(0).unwrap()));
    let tests: Vec<ImageBatch> = batches.with_flips().in_order().collect::<Result<_>>().unwrap();
    assert_eq!(tests.iter().flat_map(labels).collect::<Vec<_>>(), (0..30).collect::<Vec<i32>>());
    assert_eq!(
        tests.iter().flat_map(floats).collect::<Vec<_>>(),
        pixels.iter().map(|&x| f32::from(x) / 255.0).collect::<Vec<_>>()
    );
    assert_eq!(tests[7].images.shape().unwrap(), [2, 1, 2, 1]);
}

/// Each image is one of those that cropping and flipping by the definition give, and all of these come.
#[test]
fn crops_and_flips_are_those_of_the_definition() {
    let image: Vec<u8> = (1..=24).collect();
    let images = Images::new(image.clone(), [3, 4, 2], vec![0], 1).unwrap();
    let mut expected = std::collections::BTreeSet::new();
    for (top, left, flip) in (0..5).flat_map(|y| (0..5).flat_map(move |x| [(y, x, false), (y, x, true)])) {
        let at = |y: usize, x: usize, c: usize| match (y.checked_sub(2), x.checked_sub(2)) {
            (Some(y), Some(x)) if y < 3 && x < 4 => image[(y * 4 + x) * 2 + c],
            _ => 0,
        };
        let pixel = |y: usize, x: usize| [0, 1].map(|c| at(y + top, if flip { 3 - x } else { x } + left, c));
        expected.insert((0..12).flat_map(|i| pixel(i / 4, i % 4)).collect::<Vec<u8>>());
    }
    let batches = ImageBatches::new(images, 32, 5).unwrap().with_crops(2).unwrap().with_flips();
    let found = (0..40)
        .flat_map(|step| bytes(&batches.bytes(step).unwrap()).chunks(24).map(<[u8]>::to_vec).collect::<Vec<_>>());
    assert_eq!(found.collect::<std::collections::BTreeSet<_>>(), expected);
}

#[test]
fn drawn_images_can_be_learnt() {
    for shape in [[28, 28, 1], [32, 32, 3], [3, 5, 2]] {
        let [train, test] = [1, 2].map(|seed| Images::drawn(200, shape, 10, seed).unwrap());
        assert_eq!(train.notes(), ["the images are synthetic: they are not from a data set"]);
        assert_ne!(pixels_of(&train, 0), pixels_of(&test, 0));
        let size: usize = shape.iter().product();
        let mut means = vec![vec![0.0; size]; 10];
        for (i, &label) in train.labels().iter().enumerate() {
            means[label as usize]
                .iter_mut()
                .zip(&pixels_of(&train, i))
                .for_each(|(mean, &x)| *mean += f64::from(x) / 20.0);
        }
        let distance = |image: &[u8], mean: &[f64]| -> f64 {
            image.iter().zip(mean).map(|(&x, mean)| (f64::from(x) - mean).powi(2)).sum()
        };
        let right = (0..200).filter(|&i| {
            let of = |class: usize| distance(&pixels_of(&test, i), &means[class]);
            (0..10).min_by(|&a, &b| of(a).total_cmp(&of(b))) == Some(test.labels()[i] as usize)
        });
        assert!(right.count() > 180);
    }
}
