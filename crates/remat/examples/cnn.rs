//! A convolutional network learns to read digits of 28 by 28 pixels, the size of MNIST's.
//!
//! Run it with `cargo run -p remat --example cnn`. The digits are drawn by the program, so that there is no file to download. With
//! `MNIST=path/to/folder` in the environment they are those of MNIST, in the four files as they are published, unpacked; take `--release`
//! then. (`Images` of the crate `remat-data` reads these files compressed too, CIFAR, and folders of PNG and JPEG with a subfolder for each class, and makes
//! batches with crops and flips.)

use std::error::Error;
use std::path::Path;

use remat::nn::{Conv, Linear};
use remat::optim::{self, AdamW, Optimizer};
use remat::{DType, Tensor, Tree, jit, nn, random};

#[derive(Clone, Tree)]
struct Cnn {
    first: Conv,
    second: Conv,
    out: Linear,
}

impl Cnn {
    fn init(key: random::Key) -> Cnn {
        let [first, second, out] = key.split();
        Cnn {
            first: Conv::new(first, 1, 8, [3, 3]).strides([2, 2]),
            second: Conv::new(second, 8, 16, [3, 3]).strides([2, 2]),
            out: Linear::new(out, 16 * 7 * 7, 10),
        }
    }

    /// The logits of images `[batch, 1, 28, 28]`.
    fn apply(&self, x: &Tensor) -> Tensor {
        let x = self.second.apply(&self.first.apply(x).relu()).relu();
        self.out.apply(&x.reshape([-1, 16 * 7 * 7]))
    }
}

/// Seven strokes as boxes `(top, left, height, width)`, and which of them each digit has.
const STROKES: [(usize, usize, usize, usize); 7] =
    [(0, 0, 2, 9), (0, 7, 9, 2), (8, 7, 9, 2), (15, 0, 2, 9), (8, 0, 9, 2), (0, 0, 9, 2), (7, 0, 2, 9)];
const DIGITS: [u8; 10] = [0x3f, 0x06, 0x5b, 0x4f, 0x66, 0x6d, 0x7d, 0x07, 0x7f, 0x6f];

/// `n` digits somewhere in their images, with noise, and which digits they are.
fn drawn(key: random::Key, n: usize) -> remat::Result<(Tensor, Tensor)> {
    let [class, place, noise] = key.split();
    let class = random::randint(class, [n], DType::I32, 0..10);
    let places = random::randint(place, [n, 2], DType::I32, 3..8).to_vec::<i32>()?;
    let mut pixels = vec![0.0f32; n * 28 * 28];
    for ((image, digit), place) in pixels.chunks_mut(28 * 28).zip(class.to_vec::<i32>()?).zip(places.chunks(2)) {
        for (i, (top, left, height, width)) in STROKES.into_iter().enumerate() {
            if DIGITS[digit as usize] >> i & 1 == 1 {
                for row in top + place[0] as usize..top + place[0] as usize + height {
                    let start = row * 28 + left + place[1] as usize;
                    image[start..start + width].fill(1.0);
                }
            }
        }
    }
    let x = Tensor::from_vec(pixels, [n, 1, 28, 28]);
    Ok((x + random::normal(noise, [n, 1, 28, 28], DType::F32) * 0.2, class))
}

/// The digits of MNIST: `part` is `train` or `t10k`.
fn mnist(folder: &Path, part: &str) -> Result<(Tensor, Tensor), Box<dyn Error>> {
    // A file begins with its type, then the sizes of its dimensions, four bytes each.
    let read = |name: &str, header: usize| -> Result<Vec<u8>, Box<dyn Error>> {
        let path = folder.join(format!("{part}-{name}-ubyte"));
        let bytes = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(bytes.get(header..).ok_or_else(|| format!("{} is too short", path.display()))?.to_vec())
    };
    let x = Tensor::from(read("images-idx3", 16)?).reshape([-1, 1, 28, 28]).to_dtype(DType::F32) / 255.0;
    let class = Tensor::from(read("labels-idx1", 8)?).to_dtype(DType::I32);
    Ok((x, class))
}

/// Digits to learn from and digits to be tested on.
fn digits(key: random::Key) -> Result<[(Tensor, Tensor); 2], Box<dyn Error>> {
    if let Some(folder) = std::env::var_os("MNIST") {
        return Ok([mnist(folder.as_ref(), "train")?, mnist(folder.as_ref(), "t10k")?]);
    }
    println!("NOT MNIST: these digits are drawn by the program");
    let [train, test] = key.split();
    Ok([drawn(train, 1600)?, drawn(test, 200)?])
}

fn main() -> Result<(), Box<dyn Error>> {
    let [weights, data, batches] = random::key(0).split();
    let [(images, classes), (test, test_classes)] = digits(data)?;
    let adam = AdamW::new(0.01);
    let mut state = adam.start(Cnn::init(weights));
    let step =
        jit(optim::step(adam, |model: &Cnn, (x, class): &(Tensor, Tensor)| nn::cross_entropy(&model.apply(x), class)));
    for i in 0..100 {
        let rows = random::randint(batches.fold_in(i), [16], DType::I32, 0..images.dim(0)? as i32);
        let loss = step.update(&mut state, &(images.take(&rows, 0), classes.take(&rows, 0)))?;
        if i % 20 == 0 {
            println!("step {i:>3}: loss {loss}");
        }
    }

    let (model, _) = state;
    let right = model.apply(&test).argmax(-1).eq(&test_classes).to_dtype(DType::F32).mean(..).item::<f32>()?;
    println!("of {} new digits {:.1} % are read", test.dim(0)?, 100.0 * right);
    assert!(right > 0.8);
    Ok(())
}
