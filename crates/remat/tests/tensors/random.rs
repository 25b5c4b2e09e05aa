//! Random numbers against what JAX draws; `data/random/generate.py` wrote the numbers.

use std::collections::HashMap;

use remat::ir::Element;
use remat::random::{self, Choice, Key};
use remat::tree::leaves;
use remat::{DType, Error, ErrorKind, Policy, ScanOptions, Tensor, Tree, checkpoint, grad, jit, scan, scan_with, vmap};
use remat_ir::Literal;

/// What JAX drew: the bits of the elements.
pub(crate) struct Vector {
    dtype: DType,
    dims: Vec<usize>,
    pub(crate) bits: Vec<u64>,
}

pub(crate) fn vectors() -> HashMap<&'static str, Vector> {
    let parse = |line: &'static str| {
        let mut words = line.split(' ');
        let (name, dtype) = (words.next().unwrap(), DType::from_name(words.next().unwrap()).unwrap());
        let dims = words.next().unwrap().trim_matches(['[', ']']).split(',').filter(|d| !d.is_empty());
        let dims = dims.map(|d| d.parse().unwrap()).collect();
        (name, Vector { dtype, dims, bits: words.map(|w| u64::from_str_radix(w, 16).unwrap()).collect() })
    };
    include_str!("../data/random/vectors.txt").lines().filter(|l| !l.starts_with('#')).map(parse).collect()
}

pub(crate) fn bits(tensor: &Tensor) -> Vec<u64> {
    let data = tensor.array().unwrap().data();
    (0..data.len()).map(|i| data.get(i).unwrap().bits()).collect()
}

/// The greatest difference of elements as a multiple of the dtype's epsilon, relative where the numbers are above 1. That to NaN is
/// infinite.
fn distance(dtype: DType, a: &[u64], b: &[u64]) -> f64 {
    let (_, mantissa) = dtype.float_format().unwrap();
    let value = |bits: u64| Literal::from_bits(dtype, bits).as_f64();
    let difference = |(&a, &b): (&u64, &u64)| {
        let distance = (value(a) - value(b)).abs() / value(b).abs().max(1.0);
        if a == b {
            0.0
        } else if distance.is_nan() {
            f64::INFINITY
        } else {
            distance
        }
    };
    a.iter().zip(b).map(difference).fold(0.0, f64::max) * (mantissa as f64).exp2()
}

#[track_caller]
fn expected<'a>(vectors: &'a HashMap<&str, Vector>, name: &str, drawn: &Tensor) -> &'a Vector {
    let expected = &vectors[name];
    assert_eq!((drawn.dtype().unwrap(), drawn.shape().unwrap()), (expected.dtype, &expected.dims[..]), "{name}");
    expected
}

/// The draw has JAX's bits.
#[track_caller]
pub(crate) fn check(name: &str, drawn: &Tensor) {
    let vectors = vectors();
    assert_eq!(bits(drawn), expected(&vectors, name, drawn).bits, "{name}");
}

/// The draw is JAX's up to this multiple of the dtype's epsilon.
#[track_caller]
pub(crate) fn check_within(epsilons: f64, name: &str, drawn: &Tensor) {
    let vectors = vectors();
    let expected = expected(&vectors, name, drawn);
    let distance = distance(expected.dtype, &bits(drawn), &expected.bits);
    assert!(distance <= epsilons, "{name}: differs by {distance} epsilon");
}

pub(crate) const FLOATS: [DType; 4] = [DType::F16, DType::Bf16, DType::F32, DType::F64];

pub(crate) fn tensor<T: Element>(values: impl IntoIterator<Item = T>) -> Tensor {
    let values: Vec<T> = values.into_iter().collect();
    Tensor::from_slice(&values, [values.len()])
}

pub(crate) fn reshaped(x: Tensor, dims: impl IntoIterator<Item = usize>) -> Tensor {
    Tensor::from_array(x.array().unwrap().reshaped(dims).unwrap())
}

#[test]
fn keys() {
    let key = || random::key(1701);
    check("key", key().data());
    check("key.u32", random::key(0xFFFF_FFFF).data());
    check("key.u64", random::key(0x1234_5678_9ABC_DEF0).data());
    check("split.2", key().split_batch(2).data());
    check("split.5", key().split_batch(5).data());
    let rows = |keys: &[Key]| keys.iter().flat_map(|k| bits(k.data())).collect::<Vec<_>>();
    let expected = &vectors()["split.5"].bits;
    assert_eq!(&rows(&key().split::<5>()), expected);
    assert_eq!(&rows(&key().split_vec(5)), expected);
    assert!(key().split::<0>().is_empty());
    assert_eq!(key().split_batch(0).data().shape().unwrap(), [0, 2]);
    check("fold_in.0", key().fold_in(0).data());
    check("fold_in.1", key().fold_in(Tensor::from(1u8)).data());
    check("fold_in.4294967295", key().fold_in(u32::MAX).data());
    check("fold_in.4294967295", key().fold_in(-1i64).data());
}

#[test]
fn keys_in_transformations() {
    let keys = || random::key(1701).split_batch(3);
    let draw = |key: &Key| random::normal(key.reuse(), [2], DType::F32);
    let mapped = vmap(draw)(&keys()).unwrap();
    check_within(8.0, "vmap.normal", &mapped);
    check("vmap.split", vmap(|key: &Key| key.reuse().split_batch(2))(&keys()).unwrap().data());
    let rows: Vec<Tensor> = random::key(1701).split_vec(3).iter().map(draw).collect();
    assert_eq!(bits(&mapped), bits(&Tensor::stack(&rows, 0)));
    assert_eq!(bits(&vmap(jit_draw)(&keys()).unwrap()), bits(&mapped));
    let (_, scanned) = scan(|(): &(), key: &Key| ((), draw(key)), &(), &keys()).unwrap();
    assert_eq!(bits(&scanned), bits(&mapped));

    // A key as a carry: each step splits it.
    let step = |key: &Key, (): &()| {
        let [next, now] = key.reuse().split();
        (next, random::bits(now, (), DType::U32))
    };
    let options = ScanOptions { length: Some(4), ..ScanOptions::default() };
    let (last, words) = scan_with(&options, step, &random::key(9), &()).unwrap();
    let (mut key, mut expected) = (random::key(9), Vec::new());
    for _ in 0..4 {
        let [next, now] = key.split();
        expected.extend(bits(&random::bits(now, (), DType::U32)));
        key = next;
    }
    assert_eq!((bits(&words), bits(last.data())), (expected, bits(key.data())));
}

fn jit_draw(key: &Key) -> Result<Tensor, Error> {
    jit(|key: &Key| random::normal(key.reuse(), [2], DType::F32)).call(key.reuse())
}

/// The mask of a checkpointed dropout is drawn again, and is the same.
#[test]
fn recomputed_draws_are_the_same() {
    let dropout = |(x, key): &(Tensor, Key)| {
        let mask = random::bernoulli(key.reuse(), [64], DType::F32, 0.5);
        mask.select((x * 2).sin(), 0).sum(..)
    };
    let x = random::normal(random::key(1), [64], DType::F32);
    let gradient = |policy: Option<Policy>| {
        let f = |x: &Tensor| match &policy {
            Some(policy) => checkpoint(policy.clone(), dropout)(&(x.clone(), random::key(2))),
            None => dropout(&(x.clone(), random::key(2))),
        };
        bits(&grad(f)(&x).unwrap())
    };
    let plain = gradient(None);
    assert!(plain.contains(&0) && plain.iter().any(|x| *x != 0));
    assert_eq!(gradient(Some(Policy::Nothing)), plain);
    assert_eq!(gradient(Some(Policy::Everything)), plain);
}

/// Samples are differentiable in their parameters, not in their key.
#[test]
fn gradients_of_parameters() {
    let f =
        |scale: &Tensor| random::uniform(random::key(0), [8], DType::F64, Tensor::from(0.0f64)..scale.clone()).sum(..);
    let gradient = grad(f)(&Tensor::from(3.0f64)).unwrap().item::<f64>().unwrap();
    let u = random::uniform(random::key(0), [8], DType::F64, 0..1).sum(..).item::<f64>().unwrap();
    assert!((gradient - u).abs() < 1e-12);
}

#[test]
fn keys_are_trees() {
    let pair = (random::key(1), vec![random::key(2)]);
    let paths: Vec<String> = leaves(&pair).iter().map(|(path, _)| path.to_string()).collect();
    assert_eq!(paths, ["0", "1.0"]);
    assert_eq!(leaves(&pair)[1].1.to_vec::<u32>().unwrap(), [0, 2]);
    #[derive(Tree)]
    struct State {
        key: Key,
        step: usize,
    }
    let state = State { key: random::key(3), step: 0 };
    assert_eq!(leaves(&state).len(), 1);
    assert_eq!(format!("{:?} {}", state.key, state.step), "Key(u32[2]) 0");
}

#[test]
fn random_bits() {
    for dtype in [DType::U8, DType::U16, DType::U32, DType::U64] {
        let name = dtype.long_name();
        check(&format!("bits.{name}"), &random::bits(random::key(3), [3, 5], dtype));
        check(&format!("bits.scalar.{name}"), &random::bits(random::key(3), (), dtype));
        check(&format!("bits.empty.{name}"), &random::bits(random::key(3), [0, 2], dtype));
    }
}

#[test]
fn integers() {
    let key = || random::key(3);
    for dtype in DType::ALL.into_iter().filter(|d| d.is_integer()) {
        let name = dtype.long_name();
        let low = if dtype.is_signed() { -3 } else { 2 };
        check(&format!("randint.{name}"), &random::randint(key(), [4, 3], dtype, low..100));
        check(&format!("randint.empty_range.{name}"), &random::randint(key(), [3], dtype, 7u8..7));
        let (start, end) = (7, 2);
        let inverted = random::randint(key(), [3], dtype, start..end);
        check(&format!("randint.empty_range.{name}"), &inverted);
        if dtype.bits() <= 32 {
            let (min, max) = if dtype.is_signed() {
                (-(1i64 << (dtype.bits() - 1)), 1i64 << (dtype.bits() - 1))
            } else {
                (0, 1i64 << dtype.bits())
            };
            check(&format!("randint.whole.{name}"), &random::randint(key(), [8], dtype, min..max));
        }
        if dtype.bits() < 32 {
            check(&format!("randint.beyond.{name}"), &random::randint(key(), [8], dtype, -70000..70000));
        }
    }
    check("randint.beyond.int32", &random::randint(key(), [8], DType::I32, 5i64..1 << 40));
    check("randint.beyond.uint32", &random::randint(key(), [8], DType::U32, 5i64..1 << 40));
    check("randint.clipped.int64", &random::randint(key(), [8], DType::I64, 0..u64::MAX));
    check("randint.large.uint64", &random::randint(key(), [8], DType::U64, 1..(1u64 << 63) + 5));
    // Bounds as tensors take the path that computes with them.
    for dtype in DType::ALL.into_iter().filter(|d| d.is_integer()) {
        let name = dtype.long_name();
        let low = if dtype.is_signed() { -3i64 } else { 2 };
        check(&format!("randint.{name}"), &random::randint(key(), [4, 3], dtype, tensor([low])..tensor([100i64])));
        let inverted = random::randint(key(), [3], dtype, tensor([7u8])..tensor([2u8]));
        check(&format!("randint.empty_range.{name}"), &inverted);
        if dtype.bits() < 32 {
            let bounds = tensor([-70000])..tensor([70000]);
            check(&format!("randint.beyond.{name}"), &random::randint(key(), [8], dtype, bounds));
        }
    }
    let bounds = || tensor([5i64])..tensor([1i64 << 40]);
    check("randint.beyond.int32", &random::randint(key(), [8], DType::I32, bounds()));
    check("randint.beyond.uint32", &random::randint(key(), [8], DType::U32, bounds()));
    let whole = tensor([i64::from(i32::MIN)])..tensor([1i64 << 31]);
    check("randint.whole.int32", &random::randint(key(), [8], DType::I32, whole));
    check("randint.whole.uint32", &random::randint(key(), [8], DType::U32, tensor([0])..tensor([1i64 << 32])));
    check("randint.clipped.int64", &random::randint(key(), [8], DType::I64, tensor([0])..tensor([u64::MAX])));
    let bounds = reshaped(tensor([0, 10]), [2, 1])..tensor([5, 50, 500]);
    check("randint.bounds", &random::randint(key(), [2, 3], DType::I32, bounds));
}

#[test]
fn uniform() {
    let key = || random::key(5);
    for dtype in FLOATS {
        let name = dtype.long_name();
        check(&format!("uniform.{name}"), &random::uniform(key(), [7, 9], dtype, 0.0..1.0));
        check(&format!("uniform.{name}"), &random::uniform(key(), [7, 9], dtype, 0..1));
        check(&format!("uniform.scalar.{name}"), &random::uniform(key(), (), dtype, 0.0..1.0));
        // Bounds as tensors take the path that scales.
        let unit = tensor([0.0f32])..tensor([1.0f32]);
        check(&format!("uniform.{name}"), &random::uniform(key(), [7, 9], dtype, unit));
        check(&format!("uniform.range.{name}"), &random::uniform(key(), [40], dtype, -3.0..5.5));
    }
    let bounds = reshaped(tensor([0.0f32, 10.0]), [2, 1])..tensor([20.0f32, 40.0, 80.0]);
    check("uniform.bounds", &random::uniform(key(), [2, 3], DType::F32, bounds));
}

/// Logarithms and error functions are not the same in every engine: JAX's approximations are within some epsilons. In 16
/// bits both round the same f32 numbers.
#[test]
fn other_floats() {
    let key = || random::key(5);
    for dtype in FLOATS {
        let name = dtype.long_name();
        let epsilons = match dtype {
            // The error of XLA's log1p in f64; ours is below one.
            DType::F64 => 64.0,
            DType::F32 => 8.0,
            // Not zero, since XLA flushes the smallest number above a bound of zero to zero.
            _ => 1e-30,
        };
        check_within(epsilons, &format!("normal.{name}"), &random::normal(key(), [10, 20], dtype));
        let truncated = random::truncated_normal(key(), [100], dtype, -1.5..2.0);
        check_within(epsilons, &format!("truncated_normal.{name}"), &truncated);
        let truncated = random::truncated_normal(key(), [50], dtype, 0.0..0.25);
        check_within(epsilons, &format!("truncated_normal.zero.{name}"), &truncated);
        check_within(epsilons, &format!("exponential.{name}"), &random::exponential(key(), [100], dtype));
        check_within(epsilons, &format!("gumbel.{name}"), &random::gumbel(key(), [100], dtype));
    }
}

#[test]
fn bernoulli() {
    for dtype in FLOATS {
        let p = reshaped(tensor([0.1, 0.5, 0.9]), [3, 1]);
        check(&format!("bernoulli.{}", dtype.long_name()), &random::bernoulli(random::key(5), [3, 20], dtype, p));
    }
    let draw = |p: f32| random::bernoulli(random::key(0), [1000], DType::F32, p).to_vec::<bool>().unwrap();
    assert!(draw(1.0).iter().all(|x| *x));
    assert!(!draw(0.0).iter().any(|x| *x));
    assert!(!draw(f32::NAN).iter().any(|x| *x));
}

fn logits() -> Tensor {
    let p = [0.1f32, 0.2, 0.3, 0.4, 0.7, 0.1, 0.1, 0.1, 0.25, 0.25, 0.25, 0.25];
    reshaped(tensor(p.map(f32::ln)), [3, 4])
}

#[test]
fn categorical() {
    let key = || random::key(11);
    check("categorical", &random::categorical(key(), (), &logits(), -1));
    check("categorical.axis0", &random::categorical(key(), (), &logits(), 0));
    check("categorical.draws", &random::categorical(key(), [6, 5], &logits(), 1));
}

#[test]
fn orders() {
    let key = || random::key(11);
    for n in [0, 1, 2, 10, 2000] {
        check(&format!("permutation.{n}"), &random::permutation(key(), n));
    }
    check("shuffle.vector", &random::shuffle(key(), &tensor((0..9).map(|i| i as f32 / 8.0)), 0));
    let x = reshaped(tensor(0i16..24), [4, 6]);
    check("shuffle.0", &random::shuffle(key(), &x, 0));
    check("shuffle.1", &random::shuffle(key(), &x, -1));
    check("permuted.0", &random::permuted(key(), &x, 0));
    check("permuted.1", &random::permuted(key(), &x, 1));
    for dims in [[0, 3], [3, 0]] {
        let x = reshaped(tensor([0.0f32; 0]), dims);
        assert_eq!(random::shuffle(key(), &x, 0).shape().unwrap(), dims);
        assert_eq!(random::permuted(key(), &x, 0).shape().unwrap(), dims);
    }
}

#[test]
fn choices() {
    let key = || random::key(11);
    let with = Choice::default();
    let without = Choice { without_replacement: true, p: None };
    check("choice", &random::choice(key(), [3, 4], 10, &with));
    check("choice.without", &random::choice(key(), [3, 4], 30, &without));
    let p = Some(tensor((1..=20).map(|i| i as f32 / 210.0)));
    let weighted = Choice { p: p.clone(), ..with.clone() };
    check("choice.p", &random::choice(key(), [5, 6], 20, &weighted));
    check("choice.p.without", &random::choice(key(), [2, 5], 20, &Choice { p, ..without.clone() }));
    let one = Choice { p: Some(tensor([1.0f32])), ..with.clone() };
    check("choice.p.one", &random::choice(key(), [3], 1, &one));

    assert_eq!(random::choice(key(), [0, 3], 0, &with).shape().unwrap(), [0, 3]);
    let never = Choice { p: Some(tensor([0.0f64, 0.5, 0.0, 0.5, 0.0])), ..with };
    let drawn = random::choice(key(), [1000], 5, &never).to_vec::<i32>().unwrap();
    assert!(drawn.iter().all(|i| [1, 3].contains(i)));
}

/// Each tenth of the elements is drawn as often as its probabilities say.
#[test]
fn many_probabilities_are_drawn_from_as_they_say() {
    let draws = 40_000;
    for (dtype, n) in [(DType::F32, 10_000_000), (DType::Bf16, 1_000_000), (DType::F16, 1_000_000)] {
        let p = Tensor::full([n], 0.1, dtype);
        let options = Choice { p: Some(p), ..Choice::default() };
        let drawn = random::choice(random::key(11), [draws], n, &options).to_vec::<i32>().unwrap();
        let mut tenths = [0; 10];
        for i in drawn {
            tenths[i as usize * 10 / n] += 1;
        }
        // Five standard deviations of a binomial distribution.
        let (expected, most) = (draws as f64 / 10.0, 5.0 * (draws as f64 * 0.09).sqrt());
        assert!(tenths.iter().all(|&n| (f64::from(n) - expected).abs() < most), "{dtype}: {tenths:?}");
    }
}

#[test]
fn moments() {
    let draw = |x: Tensor| x.to_vec::<f64>().unwrap();
    let n = 4_000;
    let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len() as f64;
    let variance = |x: &[f64]| mean(&x.iter().map(|v| (v - mean(x)).powi(2)).collect::<Vec<_>>());
    let normal = draw(random::normal(random::key(0), [n], DType::F64));
    assert!(mean(&normal).abs() < 0.05 && (variance(&normal) - 1.0).abs() < 0.06);
    let exponential = draw(random::exponential(random::key(0), [n], DType::F64));
    assert!((mean(&exponential) - 1.0).abs() < 0.05 && (variance(&exponential) - 1.0).abs() < 0.1);
    let gumbel = draw(random::gumbel(random::key(0), [n], DType::F64));
    assert!((mean(&gumbel) - 0.577).abs() < 0.05 && (variance(&gumbel) - 1.645).abs() < 0.15);
    let truncated = draw(random::truncated_normal(random::key(0), [n], DType::F64, 1.0..f64::INFINITY));
    assert!((mean(&truncated) - 1.525).abs() < 0.05 && truncated.iter().all(|x| *x > 1.0 && x.is_finite()));
}

/// The error of a tensor that failed in a file, with its operation.
pub(super) fn message(x: &Tensor, file: &str) -> String {
    let error = x.array().unwrap_err();
    assert_eq!(error.loc().and_then(|loc| loc.site).map(|site| site.file()), Some(file), "{error}");
    format!("{}: {}", error.operation(), error.message())
}

#[test]
fn mistakes() {
    let key = || random::key(0);
    let message = |x: Tensor| message(&x, file!());
    let kind = |x: Tensor| x.error().unwrap().kind();
    let f32 = DType::F32;
    assert_eq!(
        message(random::bits(key(), [2], DType::I32)),
        "random::bits: bits are unsigned integers, not i32; take DType::U32"
    );
    assert_eq!(
        message(random::uniform(key(), [2], DType::I32, 0..1)),
        "random::uniform: draws floats, not i32; `randint` draws integers"
    );
    assert_eq!(
        message(random::uniform(key(), [2], f32, tensor([0.0f32; 3])..tensor([1.0; 3]))),
        "random::uniform: f32[3] does not broadcast to f32[2]"
    );
    assert_eq!(
        message(random::uniform(key(), [2], f32, tensor([false])..tensor([true]))),
        "random::uniform: takes numbers, not bool[1]; convert it with .to_dtype(DType::F32)"
    );
    assert_eq!(
        message(random::normal(key().split_batch(3), [2], f32)),
        "random::normal: takes one key, of type u32[2], and got u32[3,2]; map over stacked keys with `vmap`, or make \
         them with `split`"
    );
    assert_eq!(
        message(random::normal(Key::from_data(tensor([1i32, 2])), [2], f32)),
        "random::normal: takes one key, of type u32[2], and got i32[2]"
    );
    assert_eq!(
        message(random::normal(key(), [i64::MAX, 4], f32)),
        format!("random::normal: the shape [{}, 4] is too large", i64::MAX)
    );
    assert_eq!(
        message(random::randint(key(), [2], f32, 0..1)),
        "random::randint: draws integers, not f32; `uniform` draws floats"
    );
    assert_eq!(
        message(random::randint(key(), [2], DType::I32, 0.0..1.0)),
        "random::randint: takes integer bounds, not 0.0; convert it with .to_dtype(DType::I32)"
    );
    assert_eq!(message(key().fold_in(0.5).data().clone()), "random::fold_in: takes an integer and got 0.5");
    assert_eq!(
        message(random::categorical(key(), (), &logits(), 2)),
        "random::categorical: axis 2 is out of range for f32[3,4], which has 2 dimensions"
    );
    assert_eq!(
        message(random::choice(key(), [2], 0, &Choice::default())),
        "random::choice: 0 elements do not suffice for 2 draws"
    );
    assert_eq!(
        message(random::choice(key(), [2, 3], 5, &Choice { without_replacement: true, p: None })),
        "random::choice: 5 elements do not suffice for 6 draws without replacement"
    );
    assert_eq!(
        message(random::choice(key(), [2], 5, &Choice { p: Some(tensor([0.5f32; 2])), ..Choice::default() })),
        "random::choice: takes the probabilities of 5 elements as floats of shape [5], and got f32[2]"
    );
    assert_eq!(kind(random::shuffle(key(), &Tensor::from(1.0f32), 0)), ErrorKind::Axis);
    assert_eq!(kind(random::categorical(key(), (), &reshaped(tensor([0.0f32; 0]), [0]), 0)), ErrorKind::Shape);
    let [a, b] = Key::from_data(tensor([1.0f32])).split();
    assert_eq!(a.data().error().unwrap().operation(), "random::split");
    assert_eq!(kind(random::bits(b, (), DType::U8)), ErrorKind::Shape);
}
