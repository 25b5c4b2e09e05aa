//! Layers beside PyTorch.

use remat::nn::{
    self, AvgPool, BatchNorm, ConvTranspose, Gru, Linear, Lstm, LstmState, MaxPool, Precision, RunningStatistics, Stack,
};
use remat::optim::{AdamW, Frozen, LossScale, Mask, Optimizer, Partition, Sgd};
use remat::{ConvConfig, DType, Padding, PoolConfig, Tensor, Tree, grad, jit, random, tree, vjp};

use super::vectors::{expect, expect_gradient, filled, input};

fn message(x: &Tensor) -> String {
    x.error().unwrap().message().to_string()
}

#[test]
fn transposed_convolutions_are_those_of_pytorch() {
    for (dtype, tolerance) in [(DType::F64, 1e-11), (DType::F32, 1e-5), (DType::Bf16, 0.1)] {
        let one = ConvTranspose {
            strides: vec![2],
            padding: Padding::Explicit(vec![(1, 0)]),
            ..ConvTranspose::init(random::key(0), 4, 6, [3], dtype)
        };
        let (one, x) = (filled(&one), input(&[2, 4, 5], dtype));
        let loss = |x: &Tensor| x.square().mean(..);
        expect("conv_transpose.1", &one.apply(&x), tolerance);
        expect_gradient("conv_transpose.1.gradient", |one: &ConvTranspose| Ok(loss(&one.apply(&x))), &one, tolerance);
        let two = ConvTranspose {
            strides: vec![2, 3],
            padding: Padding::Explicit(vec![(1, 1), (0, 0)]),
            dilation: vec![1, 2],
            groups: 2,
            bias: Some(Tensor::zeros([6], dtype)),
            ..ConvTranspose::init(random::key(0), 4, 3, [3, 2], dtype)
        };
        let (two, x) = (filled(&two), input(&[2, 4, 3, 4], dtype));
        expect("conv_transpose.2", &two.apply(&x), tolerance);
        expect_gradient("conv_transpose.2.gradient", |two: &ConvTranspose| Ok(loss(&two.apply(&x))), &two, tolerance);
    }
}

#[test]
fn a_transposed_convolution_is_the_transpose_of_a_convolution() {
    // With `Same` too, whose sizes are those of the convolution's input.
    for padding in [Padding::Same, Padding::SameLower] {
        for (window, stride) in [(3, 2), (4, 2), (1, 3), (5, 1), (2, 3)] {
            let layer = ConvTranspose {
                bias: None,
                strides: vec![stride],
                padding: padding.clone(),
                ..ConvTranspose::init(random::key(0), 2, 3, [window], DType::F64)
            };
            let (x, small) = (input(&[1, 3, 4 * stride], DType::F64), input(&[1, 2, 4], DType::F64));
            // `[inputs, outputs]` of the transposed one are `[outputs, inputs]` of the convolution.
            let config = ConvConfig { strides: vec![stride], padding: padding.clone(), ..ConvConfig::default() };
            let (y, pullback) = vjp(|x: &Tensor| x.conv(&layer.kernel, &config), &x).unwrap();
            assert_eq!(y.shape().unwrap(), [1, 2, 4]);
            let expected = pullback.call(&small).unwrap();
            assert!(layer.apply(&small).allclose(&expected, 1e-12, 1e-12).unwrap(), "{padding:?} {window} {stride}");
        }
    }
    let valid = ConvTranspose {
        strides: vec![2],
        padding: Padding::Valid,
        ..ConvTranspose::init(random::key(0), 2, 3, [3], DType::F32)
    };
    assert_eq!(valid.apply(&Tensor::ones([0, 2, 4], DType::F32)).shape().unwrap(), [0, 3, 9]);
}

#[test]
fn pooling_is_that_of_pytorch() {
    for (dtype, tolerance) in [(DType::F64, 1e-11), (DType::F32, 1e-6), (DType::F16, 2e-3)] {
        let x = input(&[2, 3, 5, 7], dtype);
        expect("adaptive.avg", &nn::adaptive_avg_pool(&x, [3, 4]), tolerance);
        expect("adaptive.max", &nn::adaptive_max_pool(&x, [3, 4]), tolerance);
        expect("adaptive.larger", &nn::adaptive_avg_pool(&x, [7, 7]), tolerance);
        let one = nn::adaptive_avg_pool(&x, [1, 1]).reshape([2, 3]);
        assert!(nn::global_avg_pool(&x).allclose(&one, 1e-2, 1e-3).unwrap());
        assert!(
            nn::global_max_pool(&x).allclose(&nn::adaptive_max_pool(&x, [1, 1]).reshape([2, 3]), 0.0, 0.0).unwrap()
        );
        // A whole multiple is what pooling gives.
        let pooled = AvgPool { config: PoolConfig::new([5, 1]) }.apply(&x);
        assert!(nn::adaptive_avg_pool(&x, [1, 7]).allclose(&pooled, 1e-2, 1e-3).unwrap());
        let pooled = MaxPool { config: PoolConfig::new([1, 7]) }.apply(&x);
        assert!(nn::adaptive_max_pool(&x, [5, 1]).allclose(&pooled, 0.0, 0.0).unwrap());
    }
    let gradient =
        grad(|x: &Tensor| nn::adaptive_avg_pool(x, [2]).sum(..))(&Tensor::ones([1, 1, 5], DType::F64)).unwrap();
    assert!(gradient.allclose(&(Tensor::new([1.0, 1.0, 2.0, 1.0, 1.0]) / 3.0).reshape([1, 1, 5]), 1e-12, 0.0).unwrap());
    assert_eq!(nn::adaptive_avg_pool(&Tensor::ones([0, 3, 5], DType::F32), [2]).shape().unwrap(), [0, 3, 2]);
    let x = Tensor::ones([2, 3, 5], DType::F32);
    assert_eq!(message(&nn::adaptive_avg_pool(&x, [2, 2])), "the sizes are [2, 2] and not 1 positive number");
    assert_eq!(message(&nn::adaptive_max_pool(&x, [0])), "the sizes are [0] and not 1 positive number");
    assert_eq!(
        message(&nn::adaptive_max_pool(&x.index((.., .., ..0)), [1])),
        "a spatial dimension of f32[2,3,0] is empty"
    );
    assert_eq!(
        message(&nn::global_avg_pool(&Tensor::from(1.0f32))),
        "takes an array [batch, features, spatial..], not f32[]"
    );
    assert_eq!(
        nn::adaptive_avg_pool(&Tensor::arange(0..4).reshape([1, 1, 4]), [2]).error().unwrap().operation(),
        "nn::adaptive_avg_pool"
    );
}

#[test]
fn batch_norm_keeps_statistics_as_pytorch_does() {
    for (dtype, tolerance) in [(DType::F64, 1e-11), (DType::F32, 1e-5), (DType::Bf16, 0.05)] {
        let norm = filled(&BatchNorm::init(3, dtype));
        let x = input(&[2, 3, 5, 7], dtype);
        let begin = RunningStatistics::init(3, dtype);
        assert_eq!(begin.mean.dtype().unwrap(), if dtype == DType::F64 { DType::F64 } else { DType::F32 });
        let step = jit(|(x, statistics): &(Tensor, RunningStatistics)| norm.train(x, statistics));
        let (y, statistics) = step.call((x.clone(), begin)).unwrap();
        expect("batch_norm.train", &y, tolerance);
        let (_, statistics) = step.call((&x * 0.5 + 1.0, statistics)).unwrap();
        expect("batch_norm.mean", &statistics.mean, tolerance);
        expect("batch_norm.variance", &statistics.variance, tolerance);
        expect("batch_norm.eval", &norm.eval(&x, &statistics), tolerance);
    }
}

#[test]
fn statistics_have_no_gradient_and_survive_small_batches() {
    let norm = BatchNorm::init(2, DType::F32);
    let begin = RunningStatistics::init(2, DType::F32);
    let through = |x: &Tensor| norm.train(x, &begin).map(|(_, s)| s.mean.sum(..) + s.variance.sum(..));
    assert_eq!(grad(through)(&Tensor::ones([3, 2], DType::F32)).unwrap().to_vec::<f32>().unwrap(), [0.0; 6]);
    let (_, one) = norm.train(&Tensor::full([1, 2], 5.0, DType::F32), &begin).unwrap();
    assert_eq!(
        (one.mean.to_vec::<f32>().unwrap(), one.variance.to_vec::<f32>().unwrap()),
        (vec![0.5; 2], vec![1.0; 2])
    );
    let (y, none) = norm.train(&Tensor::ones([0, 2], DType::F32), &begin).unwrap();
    assert_eq!(y.shape().unwrap(), [0, 2]);
    assert_eq!(none.mean.to_vec::<f32>().unwrap(), [0.0; 2]);
    let error = norm.train(&Tensor::ones([3, 2], DType::F32), &RunningStatistics::init(4, DType::F32)).map(drop);
    assert_eq!(
        error.unwrap_err().message(),
        "takes a mean of floats for each channel of the weights f32[2], not f32[4]"
    );
    let mixed = RunningStatistics { variance: Tensor::ones([1], DType::F32), ..begin };
    let error = norm.train(&Tensor::ones([3, 2], DType::F32), &mixed).map(drop).unwrap_err();
    assert_eq!(error.message(), "takes a variance of floats for each channel of the weights f32[2], not f32[1]");
}

#[test]
fn recurrent_layers_are_those_of_pytorch() {
    for (dtype, tolerance) in [(DType::F64, 1e-11), (DType::F32, 1e-5)] {
        let x = input(&[2, 5, 3], dtype);
        let lstm = filled(&Lstm::init(random::key(0), 3, 4, dtype));
        let (y, last) = lstm.apply(&x, None).unwrap();
        expect("lstm.out", &y, tolerance);
        expect("lstm.cell", &last.cell, tolerance);
        let reverse = Lstm { reverse: true, ..lstm.clone() };
        expect("lstm.reverse.out", &reverse.apply(&x, None).unwrap().0, tolerance);
        let gru = filled(&Gru::init(random::key(0), 3, 4, dtype));
        let (z, hidden) = gru.apply(&x, None).unwrap();
        expect("gru.out", &z, tolerance);
        let loss = |lstm: &Lstm| Ok(lstm.apply(&x, None)?.0.square().mean(..));
        expect_gradient("lstm.gradient", loss, &lstm, tolerance);
        expect_gradient("lstm.reverse.gradient", loss, &reverse, tolerance);
        expect_gradient("gru.gradient", |gru: &Gru| Ok(gru.apply(&x, None)?.0.square().mean(..)), &gru, tolerance);

        // One position after the other, and two parts of a sequence.
        let zeros = Tensor::zeros([2, 4], dtype);
        let (mut state, mut h) = (LstmState { hidden: zeros.clone(), cell: zeros.clone() }, zeros);
        for i in 0..5 {
            state = lstm.step(&x.index((.., i)), &state);
            h = gru.step(&x.index((.., i)), &h);
            assert!(state.hidden.allclose(&y.index((.., i)), 1e-5, 1e-6).unwrap());
        }
        assert!(h.allclose(&hidden, 1e-5, 1e-6).unwrap());
        let (_, half) = lstm.apply(&x.index((.., ..2)), None).unwrap();
        let (rest, _) = lstm.apply(&x.index((.., 2..)), Some(&half)).unwrap();
        assert!(rest.allclose(&y.index((.., 2..)), 1e-5, 1e-6).unwrap());
        let (_, half) = gru.apply(&x.index((.., ..2)), None).unwrap();
        assert!(
            gru.apply(&x.index((.., 2..)), Some(&half)).unwrap().0.allclose(&z.index((.., 2..)), 1e-5, 1e-6).unwrap()
        );
    }
    let lstm = Lstm::init(random::key(0), 3, 4, DType::F32);
    let zeros = Tensor::zeros([2, 4], DType::F32);
    let failed = lstm.step(&Tensor::zeros([2, 5], DType::F32), &LstmState { hidden: zeros.clone(), cell: zeros });
    let line = line!() - 1;
    for tensor in [failed.hidden, failed.cell] {
        let error = tensor.error().unwrap();
        assert_eq!(error.message(), "takes 3 features in the last axis, as its weights f32[3,16] do, not f32[2,5]");
        assert_eq!(error.loc().and_then(|loc| loc.site).map(|site| site.line()), Some(line));
    }
    let none = lstm.apply(&Tensor::zeros([2, 0, 3], DType::F32), None).unwrap();
    assert_eq!(none.0.shape().unwrap(), [2, 0, 4]);
    let error = lstm.apply(&Tensor::zeros([5, 3], DType::F32), None).map(drop).unwrap_err();
    assert_eq!(error.message(), "takes an array [batch, positions, inputs], not f32[5,3]");
    assert_eq!(
        message(&Gru::init(random::key(0), 3, 4, DType::I32).input.weight),
        "weights must have a float dtype, not i32"
    );
}

#[test]
fn times_have_sines_and_cosines() {
    let times = Tensor::new([0.0, 0.5, 250.0]);
    let y = nn::sinusoidal_embedding(&times, 5, 1000.0, DType::F64);
    let expected: Vec<f64> = [0.0, 0.5, 250.0f64]
        .into_iter()
        .flat_map(|t| {
            let slow = t / 1000f64.sqrt();
            [t.sin(), slow.sin(), t.cos(), slow.cos(), 0.0]
        })
        .collect();
    assert!(y.allclose(&Tensor::from_vec(expected, [3, 5]), 1e-12, 1e-12).unwrap());
    assert_eq!(nn::sinusoidal_embedding(&Tensor::from(3i32), 4, 1e4, DType::Bf16).shape().unwrap(), [4]);
    assert_eq!(message(&nn::sinusoidal_embedding(&times, 4, 1e4, DType::I32)), "gives floats, not i32");
    assert_eq!(
        message(&nn::sinusoidal_embedding(&Tensor::from(true), 4, 1e4, DType::F32)),
        "takes numbers, not bool[]"
    );
    assert_eq!(
        message(&nn::sinusoidal_embedding(&times, 1 << 62, 1e4, DType::F32)),
        format!("there is no memory for the frequencies of {} features", 1u64 << 62)
    );
}

#[test]
fn precision_converts_floats_only() {
    let tree = (Tensor::ones([2], DType::F32), Tensor::arange(0..2), vec![Tensor::from(true)]);
    let compute = Precision::f16().to_compute(&tree);
    let dtypes = |tree: &(Tensor, Tensor, Vec<Tensor>)| {
        tree::leaves(tree).iter().map(|(_, x)| x.dtype().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(dtypes(&compute), [DType::F16, DType::I32, DType::Bool]);
    assert_eq!(dtypes(&Precision::f16().to_params(&compute)), [DType::F32, DType::I32, DType::Bool]);
    assert!(Precision::bf16().check().is_ok());
    let wrong = Precision { params: DType::I8, compute: DType::Bool, output: DType::I32 };
    let converted = [wrong.to_params(&tree), wrong.to_compute(&tree), wrong.to_output(&tree)];
    let expected = [("parameters", "i8"), ("computation", "bool"), ("results", "i32")];
    for ((floats, integers, _), (what, dtype)) in converted.into_iter().zip(expected) {
        assert_eq!(floats.error().unwrap().message(), format!("the dtype of {what} is not a float: {dtype}"));
        assert_eq!(integers.dtype().unwrap(), DType::I32);
    }
}

#[test]
fn a_loss_scale_skips_and_counts_steps_that_are_not_finite() {
    let optimizer = AdamW { learning_rate: 0.1.into(), ..AdamW::default() };
    let begin = vec![Tensor::new([1.0f32, 2.0]), Tensor::arange(0..2)];
    let state = optimizer.init(&begin);
    let scale = LossScale { growth_interval: 3, ..LossScale::new(8.0) };
    type Step = (Vec<Tensor>, <AdamW as Optimizer>::State<Vec<Tensor>>, LossScale);
    let step = jit(|((model, state, scale), gradient): &(Step, Tensor)| {
        let gradients = vec![gradient.clone(), model[1].clone()];
        scale.update(&optimizer, model, &gradients, state)
    });
    let fine = Tensor::new([8.0f32, -16.0]);
    let mut held = (begin, state, scale);
    let mut factors = Vec::new();
    for i in 0..9 {
        let gradient = match i {
            4 => Tensor::new([f32::INFINITY, 1.0]),
            5 => Tensor::new([1.0, f32::NAN]),
            _ => fine.clone(),
        };
        let before = held.clone();
        held = step.call((held, gradient)).unwrap();
        factors.push(held.2.factor.item::<f32>().unwrap());
        if i == 4 || i == 5 {
            for ((path, old), (_, new)) in
                tree::leaves(&(before.0, before.1)).iter().zip(tree::leaves(&(held.0.clone(), held.1.clone())))
            {
                assert!(old.allclose(&new, 0.0, 0.0).unwrap(), "{path}");
            }
        }
    }
    // Twice as much after three steps in a row, half of it after each that is not finite.
    assert_eq!(factors, [8.0, 8.0, 16.0, 16.0, 8.0, 4.0, 4.0, 4.0, 8.0]);
    assert_eq!(held.2.skipped.item::<i32>().unwrap(), 2);
    // The steps are those of the gradients without the factor.
    let (model, scale) = (vec![Tensor::new([1.0f32])], LossScale::new(4.0));
    let sgd = Sgd { learning_rate: 1.0.into(), ..Sgd::default() };
    let (next, _, _) = scale.update(&sgd, &model, &vec![Tensor::new([2.0f32])], &sgd.init(&model)).unwrap();
    assert_eq!(next[0].to_vec::<f32>().unwrap(), [0.5]);
    // The factor does not leave the range of f32.
    let most = LossScale { growth_interval: 0, ..LossScale::new(2f64.powi(127)) };
    assert_eq!(most.adjusted(&Tensor::from(true)).factor.item::<f32>().unwrap(), 2f32.powi(127));
    let least = LossScale::new(f64::from(f32::MIN_POSITIVE)).adjusted(&Tensor::from(false));
    assert_eq!(least.factor.item::<f32>().unwrap(), f32::MIN_POSITIVE);
}

/// A user's model.
#[derive(Clone, Tree)]
struct Model {
    first: Linear,
    rest: Stack<Linear>,
    head: Option<Linear>,
}

impl Model {
    fn init() -> Model {
        let [first, rest, head] = random::key(7).split();
        Model {
            first: Linear::init(first, 4, 6, DType::F32),
            rest: Stack::init(rest, 3, |key| Linear::init(key, 6, 6, DType::F32)).stacked().unwrap(),
            head: Some(Linear::init(head, 6, 2, DType::F32)),
        }
    }

    fn apply(&self, x: &Tensor) -> remat::Result<Tensor> {
        let x = self.rest.apply(|layer, x| layer.apply(x).tanh(), &self.first.apply(x))?;
        Ok(self.head.as_ref().map_or(x.clone(), |head| head.apply(&x)))
    }
}

#[test]
fn adapters_go_beside_any_linear_map() {
    let (model, x) = (Model::init(), random::normal(random::key(8), [5, 4], DType::F32));
    let lora = |maps: &[&str]| nn::Lora { rank: 2, alpha: 6.0, maps: maps.iter().map(ToString::to_string).collect() };
    let adapted = lora(&["first", "rest", "head"]).attach(random::key(9), &model).unwrap();
    let shapes: Vec<String> = tree::leaves(&adapted)
        .iter()
        .filter(|(path, _)| path.to_string().contains("adapter"))
        .map(|(path, leaf)| format!("{path} {:?}", leaf.shape().unwrap()))
        .collect();
    assert_eq!(
        shapes,
        [
            "first.adapter.a [4, 2]",
            "first.adapter.b [2, 6]",
            "rest.adapter.a [3, 6, 2]",
            "rest.adapter.b [3, 2, 6]",
            "head.adapter.a [6, 2]",
            "head.adapter.b [2, 2]"
        ]
    );
    // Nothing changes at first.
    let plain = model.apply(&x).unwrap();
    assert_eq!(adapted.apply(&x).unwrap().to_vec::<f32>().unwrap(), plain.to_vec::<f32>().unwrap());

    // Training moves the adapters only, and keeps no state for the rest.
    let optimizer = Partition {
        mask: nn::Lora::mask(),
        chosen: AdamW { learning_rate: 0.05.into(), ..AdamW::default() },
        others: Frozen,
    };
    let mut state = optimizer.init(&adapted);
    let floats = tree::leaves(&state.chosen.mu).iter().map(|(_, leaf)| leaf.size().unwrap()).sum::<usize>();
    assert_eq!(floats, 4 * 2 + 2 * 6 + 3 * 24 + 6 * 2 + 2 * 2);
    let loss = |model: &Model| Ok::<_, remat::Error>((model.apply(&x)? - 1.0).square().mean(..));
    let mut trained = adapted.clone();
    for _ in 0..20 {
        let gradient = grad(loss)(&trained).unwrap();
        (trained, state) = optimizer.update(&trained, &gradient, &state).unwrap();
    }
    assert!(loss(&trained).unwrap().item::<f32>().unwrap() < 0.5 * loss(&model).unwrap().item::<f32>().unwrap());
    let of_base = Mask::paths(["**.adapter.*"]).complement().of(&trained).unwrap();
    for ((i, (path, new)), (_, old)) in tree::leaves(&trained).iter().enumerate().zip(tree::leaves(&adapted)) {
        assert!(!of_base[i] || new.allclose(&old, 0.0, 0.0).unwrap(), "{path}");
    }

    // Merged it is a model without adapters that computes the same.
    let merged = nn::Lora::merge(&trained);
    assert_eq!(tree::leaves(&merged).len(), tree::leaves(&model).len());
    assert!(merged.apply(&x).unwrap().allclose(&trained.apply(&x).unwrap(), 1e-4, 1e-5).unwrap());
    assert!(!merged.apply(&x).unwrap().allclose(&plain, 1e-2, 1e-2).unwrap());
    // A whole that is a linear map has the empty path.
    assert!(lora(&[""]).attach(random::key(9), &model.first).unwrap().adapter.is_some());

    let refused =
        |lora: nn::Lora, model: &Model| lora.attach(random::key(9), model).map(drop).unwrap_err().message().to_string();
    assert_eq!(
        refused(lora(&["first", "tail"]), &model),
        "the pattern `tail` matches no linear map of the model: first, rest, head"
    );
    assert_eq!(refused(nn::Lora { rank: 0, ..lora(&["first"]) }, &model), "the rank must be at least 1");
    assert_eq!(refused(lora(&["first"]), &adapted), "the map at `first` has an adapter already");
    assert_eq!(refused(lora(&[]), &model), "there is no pattern of the linear maps that get adapters");
    let mut integers = Model::init();
    integers.first.weight = Tensor::zeros([4, 6], DType::I32);
    assert_eq!(refused(lora(&["first"]), &integers), "the weight at `first` is not a float: i32[4,6]");
}
