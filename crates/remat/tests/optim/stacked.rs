//! Steps of a list of layers, beside those of the same layers stacked.

use remat::nn::{Block, Linear, Stack};
use remat::optim::{
    Adafactor, Adam8bit, AdamW, Frozen, Lion, Mask, Muon, Optimizer, Partition, Sgd, add_decayed_weights,
};
use remat::tree::{Structure, leaves};
use remat::{DType, Tensor, random, tree};

/// Three blocks in a list, whose leaves are of different sizes.
fn blocks(seed: u64) -> Stack<Block> {
    let (key, mut number) = (random::key(seed), 0u32);
    let blocks = Stack::init(random::key(0), 3, |key| Block::init(key, 8, 2, DType::F32));
    tree::map(&blocks, |leaf| {
        number += 1;
        random::normal(key.fold_in(number), leaf.shape().unwrap(), DType::F32) * (f64::from(number) * 0.1)
    })
}

/// Three steps of both forms.
#[track_caller]
fn same_steps(optimizer: &impl Optimizer) {
    let (mut list, mut stacked) = (blocks(1), blocks(1).stacked().unwrap());
    let (mut of_list, mut of_stacked) = (optimizer.init(&list), optimizer.init(&stacked));
    for seed in 2..5 {
        let gradients = blocks(seed);
        (list, of_list) = optimizer.update(&list, &gradients, &of_list).unwrap();
        (stacked, of_stacked) = optimizer.update(&stacked, &gradients.stacked().unwrap(), &of_stacked).unwrap();
    }
    same(&list, stacked);
}

#[track_caller]
fn same(list: &Stack<Block>, stacked: Stack<Block>) {
    for ((path, a), (_, b)) in leaves(list).iter().zip(leaves(&stacked.unstacked())) {
        assert!(a.allclose(&b, 1e-5, 1e-6).unwrap(), "{path}");
    }
}

#[test]
fn a_step_of_stacked_layers_is_that_of_a_list() {
    let adamw = AdamW { learning_rate: 0.1.into(), weight_decay: 0.5, decay: Mask::Matrices, ..AdamW::default() };
    same_steps(&adamw);
    same_steps(&Lion { decay: Mask::Matrices, weight_decay: 0.5, ..Lion::default() });
    let muon = Muon { weight_decay: 0.1, adamw: adamw.clone(), ..Muon::default() };
    same_steps(&muon);
    same_steps(&Muon { matrices: Mask::All, rms: Some(0.2), ..muon });
    let adafactor = Adafactor { min_factored: 4, weight_decay: 0.1, decay: Mask::Matrices, ..Adafactor::default() };
    same_steps(&adafactor);
    same_steps(&Adafactor { min_factored: 128, momentum: Some(0.9), ..adafactor });
    // Weights are coded in blocks that do not divide them, and vectors are kept as they are.
    same_steps(&Adam8bit { adamw: adamw.clone(), block: 7, min_size: 40 });
    same_steps(&Partition { mask: Mask::Matrices, chosen: Frozen, others: Sgd::default() });

    let (list, gradients) = (blocks(1), blocks(2));
    let decayed = add_decayed_weights(&gradients, &list, 0.5, &Mask::Matrices).unwrap();
    let (list, gradients) = (list.stacked().unwrap(), gradients.stacked().unwrap());
    same(&decayed, add_decayed_weights(&gradients, &list, 0.5, &Mask::Matrices).unwrap());
}

#[test]
fn states_of_stacked_layers_are_of_each_layer() {
    let layers = Stack::init(random::key(0), 3, |key| Linear::init(key, 8, 6, DType::F32)).stacked().unwrap();
    let shapes = |state: &Stack<Linear>| -> Vec<Vec<usize>> {
        leaves(state).iter().map(|(_, leaf)| leaf.shape().unwrap().to_vec()).collect()
    };
    let state = Adafactor { min_factored: 2, ..Adafactor::default() }.init(&layers);
    assert_eq!(shapes(&state.row), [vec![3, 6], vec![0]]);
    assert_eq!(shapes(&state.column), [vec![3, 8], vec![0]]);
    assert_eq!(shapes(&state.full), [vec![0], vec![3, 6]]);
    // Two blocks of each layer; its six biases are too few to be coded, if not those of all layers.
    let state = Adam8bit { block: 32, min_size: 10, ..Adam8bit::default() }.init(&layers);
    assert_eq!(shapes(&state.mu_scale), [vec![6], vec![0]]);
    let state = Muon::default().init(&layers);
    assert_eq!(shapes(&state.muon.mu), [vec![3, 8, 6], vec![0]]);
    assert_eq!(shapes(&state.adamw.mu), [vec![0], vec![3, 6]]);
}

#[test]
fn axes_of_layers_of_stacks_in_stacks() {
    let inner = |key| Stack::init(key, 2, |key| Linear::init(key, 4, 4, DType::F32)).stacked().unwrap();
    let list = Stack::init(random::key(0), 3, inner);
    assert_eq!(Structure::of(&list).layer_axes(), [1; 6]);
    let stacked = (list.stacked().unwrap(), Tensor::ones([2, 2], DType::F32));
    assert_eq!(Structure::of(&stacked).layer_axes(), [2, 2, 0]);
    assert_eq!(Mask::Matrices.of(&stacked).unwrap(), [true, false, true]);
    assert_eq!(Mask::Matrices.complement().of(&stacked).unwrap(), [false, true, false]);
}
