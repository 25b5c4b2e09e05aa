//! `optim::step`: the same bits as the step that it stands for.

use remat::optim::{self, Adafactor, Adam8bit, AdamW, Lion, Muon, Optimizer, Sgd};
use remat::tree::leaves;
use remat::{DType, ErrorKind, Result, Tensor, Tree, jit, nn, random, tree, value_and_grad};

type Batch = (Tensor, Tensor);

fn model() -> nn::Mlp {
    nn::Mlp::new(random::key(0), 4, 8)
}

fn batch() -> Batch {
    let x = random::normal(random::key(1), [16, 4], DType::F32);
    (x.clone(), x.sin())
}

fn loss(model: &nn::Mlp, (x, y): &Batch) -> Tensor {
    nn::mean_squared_error(&model.apply(x), y)
}

fn values<T: Tree>(tree: &T) -> Vec<Vec<f64>> {
    leaves(tree).iter().map(|(_, leaf)| leaf.to_dtype(DType::F64).to_vec().unwrap()).collect()
}

fn agrees<O: Optimizer>(optimizer: O) {
    let by_hand = jit(|(model, state, batch): &(nn::Mlp, O::State<nn::Mlp>, Batch)| -> Result<_> {
        let (loss, gradient) = value_and_grad(|model: &nn::Mlp| loss(model, batch))(model)?;
        let (model, state) = optimizer.update(model, &gradient, state)?;
        Ok((model, state, loss))
    });
    let (mut model, mut state) = optimizer.start(self::model());
    let step = jit(optim::step(&optimizer, loss));
    let mut both = optimizer.start(self::model());
    for _ in 0..3 {
        let expected;
        (model, state, expected) = by_hand.call((model, state, batch())).unwrap();
        let found = step.update(&mut both, &batch()).unwrap();
        assert_eq!(found.item::<f32>().unwrap(), expected.item::<f32>().unwrap());
    }
    assert_eq!(values(&both), [values(&model), values(&state)].concat());
    assert_eq!(step.cache_size(), 1);
}

#[test]
fn it_is_the_step_written_by_hand() {
    agrees(Sgd::new(0.1).momentum(0.9));
    agrees(AdamW::new(0.1));
    agrees(Adam8bit::new(0.1).min_size(1).block(8));
    agrees(Adafactor::new(0.1).min_factored(4));
    agrees(Lion::new(0.1));
    agrees(Muon::new(0.1));
}

#[test]
fn it_needs_no_more_memory() {
    let adam = AdamW::new(0.1);
    let by_hand = jit(|(model, state, batch): &(nn::Mlp, optim::Moments<nn::Mlp>, Batch)| -> Result<_> {
        let (loss, gradient) = value_and_grad(|model: &nn::Mlp| loss(model, batch))(model)?;
        let (model, state) = adam.update(model, &gradient, state)?;
        Ok((model, state, loss))
    });
    let expected = by_hand.memory(&(model(), adam.init(&model()), batch())).unwrap();
    let found = jit(optim::step(&adam, loss)).memory(&(adam.start(model()), batch())).unwrap();
    assert_eq!((found.donated_peak, found.peak), (expected.donated_peak, expected.peak));
}

#[test]
fn its_errors_are_at_the_line_of_the_user() {
    let adam = AdamW::new(0.1);
    let mut state = adam.start(model());
    let line = line!() + 1;
    let step = jit(optim::step(adam.clone(), |model: &nn::Mlp, (x, _): &Batch| model.apply(x)));
    let error = step.update(&mut state, &batch()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Differentiation);
    assert_eq!(error.loc().and_then(|loc| loc.site).map(|site| site.line()), Some(line));

    let line = line!() + 1;
    let step = jit(optim::step(adam.clone().decay(optim::Mask::paths(["sideways"])), loss));
    let error = step.update(&mut state, &batch()).unwrap_err();
    assert!(error.message().starts_with("the pattern `sideways` matches no path of the model"), "{error}");
    assert_eq!(error.loc().and_then(|loc| loc.site).map(|site| site.line()), Some(line));
    // Both errors left the state.
    jit(optim::step(adam, loss)).update(&mut state, &batch()).unwrap();
}

/// A state can be cloned, by `Clone` or as any tree, and then goes its own way.
#[test]
fn states_are_cloned() {
    fn cloned<S: Tree + Clone>(state: S) {
        assert_eq!(values(&state.clone()), values(&state));
        assert_eq!(values(&tree::map(&state, Tensor::clone)), values(&state));
    }
    cloned(Sgd::new(0.1).momentum(0.9).init(&model()));
    cloned(AdamW::new(0.1).init(&model()));
    cloned(Adam8bit::new(0.1).init(&model()));
    cloned(Adafactor::new(0.1).init(&model()));
    cloned(Lion::new(0.1).init(&model()));
    cloned(Muon::new(0.1).init(&model()));
    cloned(optim::Accumulate::new(AdamW::new(0.1), 2).init(&model()));
    cloned(optim::Partition::new(optim::Mask::Matrices, AdamW::new(0.1), optim::Frozen).init(&model()));
    cloned(optim::Ema::default().init(&model()));
    cloned(optim::LossScale::default());
}
