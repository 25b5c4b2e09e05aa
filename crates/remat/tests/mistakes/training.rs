//! Optimizers and trees that do not belong together.

use remat::optim::{AdamW, Lion, Optimizer, Sgd};
use remat::{DType, Tensor, tree};

fn zeros(shape: &[usize]) -> Tensor {
    Tensor::zeros(shape, DType::F32)
}

#[test]
fn gradients_of_another_model() {
    let (model, other) = (vec![zeros(&[2, 3])], vec![zeros(&[2, 3]), zeros(&[3])]);
    let state = AdamW::default().init(&model);
    mistake!(
        AdamW::default().update(&model, &other, &state),
        "optim::AdamW::update: the structures of the model and of the gradients differ: 1 element against 2 elements",
        1,
        26
    );
    mistake!(
        AdamW::default().update(&other, &other, &state),
        "optim::AdamW::update: the structures of the model and of the state differ: 2 elements against 1 element",
        1,
        26
    );
    let state = Lion::default().init(&model);
    mistake!(
        Lion::default().update(&model, &vec![zeros(&[3, 2])], &state),
        "optim::Lion::update: `0` is f32[2,3] in the model and f32[3,2] in the gradients",
        1,
        25
    );
}

#[test]
fn a_state_without_velocity() {
    let model = vec![zeros(&[2])];
    let state = Sgd { momentum: 0.0, ..Sgd::default() }.init(&model);
    mistake!(
        Sgd { momentum: 0.9, ..Sgd::default() }.update(&model, &model, &state),
        "optim::Sgd::update: the state has no velocity; make it with `init` of an optimizer with momentum",
        1,
        49
    );
}

#[test]
fn trees_of_different_structures() {
    mistake!(
        tree::map2(&vec![zeros(&[2])], &vec![], |x, _| x.clone()),
        "tree::map2: the trees have different structures: 1 element against 0 elements",
        1,
        9
    );
    mistake!(
        tree::map2(&Some(zeros(&[2])), &None, |x, _| x.clone()),
        "tree::map2: the trees have different structures: the variant `Some` against the variant `None`",
        1,
        9
    );
    mistake!(
        tree::map2(&(zeros(&[2]), 3usize), &(zeros(&[2]), 4usize), |x, _| x.clone()),
        "tree::map2: the trees have different structures: the values of type usize at `1` differ",
        1,
        9
    );
}
