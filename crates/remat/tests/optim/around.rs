//! What comes around an optimizer: masks, partitions, accumulation, averages.

use remat::optim::{Accumulate, AdamW, Ema, Frozen, Mask, Optimizer, Partition, Sgd, add_decayed_weights};
use remat::{DType, ErrorKind, Tensor, jit};

use super::{Model, close, gradient, run_optimizer, start, values};

fn adamw() -> AdamW {
    AdamW { learning_rate: 0.1.into(), ..AdamW::default() }
}

#[test]
fn frozen_parameters() {
    let frozen = Partition { mask: Mask::paths(["a"]), chosen: Frozen, others: adamw() };
    run_optimizer("adamw.frozen", &frozen);
    let trained = Partition { mask: Mask::paths(["a"]).complement(), chosen: adamw(), others: Frozen };
    run_optimizer("adamw.frozen", &trained);
    // Masks inside see the whole model's paths, and nothing is kept for what is frozen.
    let inner = AdamW { decay: Mask::paths(["a"]), ..adamw() };
    let state = Partition { chosen: inner, ..trained }.init(&start(DType::F32));
    assert_eq!((state.chosen.mu.a.size().unwrap(), state.chosen.mu.b.size().unwrap()), (0, 3));
}

/// The gradients of frozen parameters are not computed.
#[test]
fn frozen_gradients_are_dropped() {
    let steps = |mask: &'static str| {
        let optimizer = Partition { mask: Mask::paths([mask]), chosen: adamw(), others: Frozen };
        let loss = |m: &(Tensor, Tensor)| (m.0.sin() + m.1.square()).sum(..);
        let step = jit(move |m: &(Tensor, Tensor)| {
            let state = optimizer.init(m);
            Ok::<_, remat::Error>(optimizer.update(m, &remat::grad(loss)(m)?, &state)?.0)
        });
        step.jaxpr(&(Tensor::new([1.0f32, 2.0]), Tensor::new([3.0f32, 4.0]))).unwrap().to_string()
    };
    assert!(!steps("1").contains("cos") && steps("0").contains("cos"));
}

#[test]
fn accumulated_gradients() {
    let adam = Accumulate { optimizer: adamw(), steps: 3 };
    run_optimizer("accumulated", &adam);
    run_optimizer("adamw", &Accumulate { optimizer: adamw(), steps: 1 });

    // Inside `jit` as outside, with one program.
    let step = jit(|(model, state, gradient): &(Model, _, Model)| adam.update(model, gradient, state));
    let first = start(DType::F32);
    let (mut one, mut other) = ((first.clone(), adam.init(&first)), (first.clone(), adam.init(&first)));
    for t in 0..7 {
        one = adam.update(&one.0, &gradient(t, DType::F32), &one.1).unwrap();
        other = step.call((other.0, other.1, gradient(t, DType::F32))).unwrap();
        assert_eq!(values(&one.0.a), values(&other.0.a));
    }
    assert_eq!(step.cache_size(), 1);
    let state = other.1;
    assert_eq!((state.count.item::<i32>().unwrap(), state.inner.step.item::<i32>().unwrap()), (1, 2));

    let error = Accumulate { optimizer: adamw(), steps: 0 }.update(&first, &first, &state).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Argument);
    assert_eq!(error.message(), "`steps` is 0 and must be from 1 to 2147483647");
    assert_eq!(error.loc().and_then(|l| l.site).map(|s| s.file()), Some(file!()));
}

fn run_ema(name: &str, ema: &Ema) {
    let sgd = Sgd { learning_rate: 0.1.into(), ..Sgd::default() };
    for (dtype, tolerance) in [(DType::F64, 1e-12), (DType::F32, 1e-5)] {
        let mut model = start(dtype);
        let (mut state, mut average) = (sgd.init(&model), ema.init(&model));
        for step in 0..20 {
            (model, state) = sgd.update(&model, &gradient(step, dtype), &state).unwrap();
            average = ema.update(&model, &average).unwrap();
        }
        let average = ema.average(&model, &average).unwrap();
        close(name, &[values(&average.a), values(&average.b)].concat(), tolerance);
    }
}

#[test]
fn averages_of_parameters() {
    run_ema("ema", &Ema { decay: 0.9, debias: true });
    run_ema("ema.start", &Ema { decay: 0.9, debias: false });
    let model = (Tensor::new([1.5f32]).to_dtype(DType::Bf16), Tensor::new([3]));
    for debias in [true, false] {
        let ema = Ema { debias, ..Ema::default() };
        let before = ema.average(&model, &ema.init(&model)).unwrap();
        assert_eq!((values(&before.0), before.1.to_vec::<i32>().unwrap()), (vec![1.5], vec![3]));
        let state = ema.update(&model, &ema.init(&model)).unwrap();
        assert_eq!((state.average.0.dtype().unwrap(), state.average.1.size().unwrap()), (DType::F32, 0));
        let after = ema.average(&model, &state).unwrap();
        assert_eq!((after.0.dtype().unwrap(), values(&after.0)), (DType::Bf16, vec![1.5]));
    }
}

#[test]
fn masks_by_path() {
    let leaf = || Tensor::new([1.0f32]);
    let model = (vec![(leaf(), leaf()), (leaf(), leaf())], leaf());
    let takes = |patterns: &[&str]| Mask::paths(patterns.iter().copied()).of(&model);
    assert_eq!(takes(&["0.*.1"]).unwrap(), [false, true, false, true, false]);
    assert_eq!(takes(&["0.0.**", "1"]).unwrap(), [true, true, false, false, true]);
    assert_eq!(takes(&["**.1"]).unwrap(), [false, true, false, true, true]);
    assert_eq!(takes(&["**"]).unwrap(), [true; 5]);
    assert_eq!(takes(&["**.0.**.**"]).unwrap(), [true, true, true, true, false]);
    assert_eq!(takes(&[]).unwrap(), [false; 5]);
    assert_eq!(Mask::paths([""]).of(&leaf()).unwrap(), [true]);
    for pattern in ["*", "0.*", "", "0.0.0.*", "0..1", "2"] {
        let only = takes(&[pattern]);
        let matched = only.as_ref().is_ok_and(|takes| takes.contains(&true));
        assert_eq!(matched, pattern == "*", "{pattern}");
    }
    let mask = Mask::paths(["bias"]).complement();
    assert_eq!(format!("{mask:?}"), r#"Complement(Paths(["bias"]))"#);
    let small = (leaf(), leaf());
    let error = AdamW { decay: mask.clone(), ..adamw() }.update(&small, &small, &adamw().init(&small)).err().unwrap();
    assert_eq!(error.message(), "the pattern `bias` matches no path of the model: 0, 1");
    let error = Mask::paths(["bias"]).of(&leaf()).err().unwrap();
    let expected = "the pattern `bias` matches no path of the model, which is one tensor and has the empty path";
    assert_eq!(error.message(), expected);
    assert!(error.loc().is_some());
    assert!(add_decayed_weights(&small, &small, 0.1, &mask).is_err());
    let partition = Partition { mask, chosen: Frozen, others: Frozen };
    assert!(partition.update(&small, &small, &partition.init(&small)).is_err());
}

#[test]
fn decayed_gradients() {
    let (model, wrong) = ((Tensor::new([2.0f32]), Tensor::new([3])), (Tensor::new([2.0f32, 1.0]), Tensor::new([3])));
    let sum = add_decayed_weights(&model, &model, 0.5, &Mask::All).unwrap();
    assert_eq!((values(&sum.0), sum.1.to_vec::<i32>().unwrap()), (vec![3.0], vec![3]));
    let error = add_decayed_weights(&wrong, &model, 0.5, &Mask::All).err().unwrap();
    assert_eq!(error.message(), "`0` is f32[1] in the model and f32[2] in the gradients");
}
