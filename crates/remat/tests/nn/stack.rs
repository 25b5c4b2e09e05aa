//! Stacks of layers, beside the same layers one after the other.

use remat::nn::{Block, Linear, Precision, Stack};
use remat::report::saved_residuals;
use remat::{DType, Error, Policy, Result, Tensor, Tree, checkpoint, jit, random, tree, value_and_grad, vmap};

const LAYERS: usize = 4;

fn blocks(dtype: DType) -> Stack<Block> {
    Stack::init(random::key(3), LAYERS, |key| Block::init(key, 8, 2, dtype))
}

fn input(dtype: DType) -> Tensor {
    random::normal(random::key(4), [2, 6, 8], dtype)
}

fn policies() -> Vec<Option<Policy>> {
    let names = Policy::names(["attn"]);
    vec![None, Some(Policy::Everything), Some(Policy::Dots), Some(names), Some(Policy::Nothing)]
}

fn loss(blocks: &Stack<Block>, x: &Tensor) -> Result<Tensor> {
    Ok(blocks.apply(|block, x| block.apply(x), x)?.square().mean(..))
}

/// The loss, the gradients of all layers, unstacked, and that of the input.
fn step(blocks: Stack<Block>, x: &Tensor) -> (Vec<u8>, Vec<Vec<u8>>) {
    let step = jit(|(blocks, x): &(Stack<Block>, Tensor)| {
        value_and_grad(|(blocks, x): &(Stack<Block>, Tensor)| loss(blocks, x))(&(blocks.clone(), x.clone()))
    });
    let (loss, (gradient, dx)) = step.call((blocks, x.clone())).unwrap();
    let bytes = |tensor: &Tensor| tensor.to_dtype(DType::F64).to_vec::<f64>().unwrap();
    let bits = |tensor: &Tensor| bytes(tensor).iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let mut all: Vec<Vec<u8>> = tree::leaves(&gradient.to_layers()).iter().map(|(_, leaf)| bits(leaf)).collect();
    all.push(bits(&dx));
    (bits(&loss), all)
}

#[test]
fn every_way_to_run_layers_gives_the_same_bits() {
    for dtype in [DType::F32, DType::Bf16] {
        let x = input(dtype);
        let expected = step(blocks(dtype), &x);
        let policies = if dtype == DType::F32 { policies() } else { vec![Some(Policy::Dots)] };
        for stacked in [false, true] {
            for policy in &policies {
                for levels in [1, 2] {
                    let blocks = if stacked { blocks(dtype).stacked().unwrap() } else { blocks(dtype) };
                    let actual = step(blocks.with_policy(policy.clone()).with_levels(levels), &x);
                    assert!(actual == expected, "{dtype} stacked: {stacked}, {policy:?}, {levels} levels");
                }
            }
        }
    }
}

/// Weights of f32 that are converted inside each layer, under its policy, are as those that are converted before; no converted copy is kept.
#[test]
fn layers_may_compute_in_another_dtype_than_that_of_their_weights() {
    let x = input(DType::Bf16);
    let bits = |tensor: &Tensor| tensor.to_vec::<f32>().unwrap().iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
    let gradient = |blocks: Stack<Block>, before: bool| -> Vec<Vec<u32>> {
        let narrow = Precision { compute: DType::Bf16, ..Precision::default() };
        let loss = |blocks: &Stack<Block>| match before {
            true => loss(&narrow.to_compute(blocks), &x),
            false => loss(&blocks.clone().with_compute(DType::Bf16), &x),
        };
        let (_, gradient) = value_and_grad(loss)(&blocks).unwrap();
        tree::leaves(&gradient.to_layers()).iter().map(|(_, leaf)| bits(leaf)).collect()
    };
    let expected = gradient(blocks(DType::F32), true);
    for policy in policies() {
        for stacked in [false, true] {
            let blocks = if stacked { blocks(DType::F32).stacked().unwrap() } else { blocks(DType::F32) };
            assert!(gradient(blocks.with_policy(policy.clone()), false) == expected, "{policy:?} stacked: {stacked}");
        }
    }
    let kept = |blocks: Stack<Block>| {
        let blocks = blocks.with_policy(Policy::Nothing);
        saved_residuals(|blocks: &Stack<Block>| loss(blocks, &x), &blocks).unwrap().intermediate_bytes()
    };
    let [wide, narrow] = [DType::F32, DType::Bf16].map(|dtype| blocks(dtype).with_compute(DType::Bf16));
    assert_eq!(kept(wide.clone()), kept(narrow.clone()));
    assert_eq!(kept(wide.stacked().unwrap()), kept(narrow.stacked().unwrap()));
}

#[test]
fn a_list_is_what_a_loop_over_checkpointed_layers_is() {
    let x = input(DType::F32);
    for policy in policies() {
        let by_hand = |blocks: &Vec<Block>| {
            let mut x = x.clone();
            for block in blocks {
                x = checkpoint(policy.clone(), |x: &Tensor| block.apply(x))(&x);
            }
            x.square().mean(..)
        };
        let own = |blocks: &Vec<Block>| loss(&Stack::from(blocks.clone()).with_policy(policy.clone()), &x);
        let layers = blocks(DType::F32).to_layers();
        let kept = |residuals: remat::report::Residuals| -> Vec<String> {
            residuals.iter().map(|r| format!("{} {}", r.aval, r.kind)).collect()
        };
        let expected = kept(saved_residuals(by_hand, &layers).unwrap());
        assert_eq!(kept(saved_residuals(own, &layers).unwrap()), expected, "{policy:?}");
    }
}

#[test]
fn levels_keep_some_states_only() {
    let layers = Stack::init(random::key(0), 16, |key| Linear::init(key, 8, 8, DType::F32));
    let x = Tensor::ones([4, 8], DType::F32);
    for stack in [layers.clone(), layers.stacked().unwrap()] {
        let kept = |levels: usize| {
            let stack = stack.clone().with_policy(Policy::Nothing).with_levels(levels);
            let f = |stack: &Stack<Linear>| Ok::<_, Error>(stack.apply(|layer, x| layer.apply(x).tanh(), &x)?.sum(..));
            let residuals = saved_residuals(f, &stack).unwrap();
            // States of the layers, and not the weights, which a loop reshapes for its levels.
            let states =
                residuals.intermediates().filter(|r| r.aval.shape.last() == Some(&8) && r.aval.shape.contains(&4));
            states.filter(|r| !r.aval.shape.ends_with(&[8, 8])).map(|r| r.bytes()).sum::<usize>() / (4 * 8 * 4)
        };
        // All states but the first one, which the caller has; the first states of four blocks, of which likewise. A loop keeps
        // the first one with the others.
        let first = usize::from(stack.is_stacked());
        assert_eq!([kept(1), kept(2)], [15 + first, 3 + first]);
    }
}

#[test]
fn stacks_convert_and_have_the_paths_of_their_layers() {
    let list = blocks(DType::F32);
    let stacked = list.clone().stacked().unwrap();
    let paths = |stack: &Stack<Block>| tree::leaves(stack).iter().map(|(path, _)| path.to_string()).collect::<Vec<_>>();
    assert!(paths(&list).contains(&"3.attn.qkv.weight".to_string()));
    assert!(paths(&stacked).contains(&"attn.qkv.weight".to_string()));
    assert_eq!((list.len(), stacked.len(), stacked.is_stacked(), list.is_empty()), (LAYERS, LAYERS, true, false));
    let values = |stack: Stack<Block>| -> Vec<Vec<f32>> {
        tree::leaves(&stack).iter().map(|(_, leaf)| leaf.to_vec().unwrap()).collect()
    };
    assert_eq!(values(stacked.clone().unstacked()), values(list.clone()));
    assert_eq!(values(Stack::from(stacked.to_layers())), values(list.clone()));
    // Conversions of what already is so change nothing.
    assert_eq!(values(stacked.clone().stacked().unwrap()), values(stacked));
    assert_eq!(values(list.clone().unstacked()), values(list));
}

#[test]
fn inputs_and_outputs_of_each_layer_go_along() {
    let list = Stack::init(random::key(0), 4, |key| Linear::init(key, 3, 3, DType::F32));
    let (x, scales) =
        (Tensor::ones([2, 3], DType::F32), (Tensor::new([1.0f32, 2.0, 0.5, 3.0]), vec![Tensor::arange(0..4)]));
    let run = |stack: &Stack<Linear>| {
        let body = |layer: &Linear, x: &Tensor, (scale, ids): &(Tensor, Vec<Tensor>)| {
            let y = layer.apply(x) * scale;
            (y.clone(), (y.sum(..), ids[0].clone()))
        };
        stack.scan(body, &x, &scales).unwrap()
    };
    for levels in [1, 2] {
        let list = list.clone().with_levels(levels);
        let ((a, (sums_a, ids)), (b, (sums_b, _))) = (run(&list), run(&list.clone().stacked().unwrap()));
        assert_eq!(a.to_vec::<f32>().unwrap(), b.to_vec::<f32>().unwrap());
        assert_eq!(sums_a.to_vec::<f32>().unwrap(), sums_b.to_vec::<f32>().unwrap());
        assert_eq!(ids.to_vec::<i32>().unwrap(), [0, 1, 2, 3]);
    }
}

#[test]
fn a_stack_is_batched_as_its_layers_are() {
    let xs = random::normal(random::key(5), [3, 6, 8], DType::F32);
    let expected = blocks(DType::F32).apply(|block, x| block.apply(x), &xs).unwrap();
    for stack in [blocks(DType::F32), blocks(DType::F32).stacked().unwrap()] {
        let stack = stack.with_policy(Policy::Dots);
        let actual = vmap(|x: &Tensor| stack.apply(|block, x| block.apply(x), x))(&xs).unwrap();
        assert!(actual.allclose(&expected, 1e-5, 1e-6).unwrap());
    }
}

#[test]
fn no_layers_and_one_layer() {
    let x = Tensor::ones([2, 3], DType::F32);
    let none: Stack<Linear> = Stack::from(Vec::new());
    for none in [none.clone(), none.clone().stacked().unwrap(), none.with_policy(Policy::Dots).with_levels(2)] {
        assert!(none.is_empty());
        assert_eq!(none.apply(|layer, x| layer.apply(x), &x).unwrap().to_vec::<f32>().unwrap(), [1.0; 6]);
        let error = none.scan(|_, x: &Tensor, (): &()| (x.clone(), x.clone()), &x, &()).unwrap_err();
        assert_eq!(error.message(), "without layers the type of their outputs is unknown");
    }
    let one = Stack::from(vec![Linear::init(random::key(0), 3, 3, DType::F32)]);
    let expected = one.apply(|layer, x| layer.apply(x), &x).unwrap().to_vec::<f32>().unwrap();
    let stacked = one.stacked().unwrap().with_levels(4);
    assert_eq!(stacked.apply(|layer, x| layer.apply(x), &x).unwrap().to_vec::<f32>().unwrap(), expected);
}

#[derive(Clone, Tree)]
struct Scaled {
    weight: Option<Tensor>,
    heads: usize,
}

#[test]
fn layers_that_differ_are_an_error_with_their_number_and_leaf() {
    let layer = |dtype, heads| Scaled { weight: Some(Tensor::ones([2], dtype)), heads };
    let message = |layers: Vec<Scaled>| Stack::from(layers).stacked().map(drop).unwrap_err().message().to_string();
    let first = layer(DType::F32, 2);
    assert_eq!(
        message(vec![first.clone(), first.clone(), layer(DType::Bf16, 2)]),
        "layer 2 differs from layer 0 at `weight`: bf16[2] and f32[2]"
    );
    assert_eq!(
        message(vec![first.clone(), layer(DType::F32, 4)]),
        "layer 1 differs from layer 0: the values of type usize at `heads` differ"
    );
    assert_eq!(
        message(vec![first.clone(), Scaled { weight: None, heads: 2 }]),
        "layer 1 differs from layer 0: the variant `None` against the variant `Some` at `weight`"
    );
    let line = line!() + 1;
    let error = Stack::from(vec![first.clone(), layer(DType::F32, 4)]).stacked().map(drop).unwrap_err();
    assert_eq!(error.loc().and_then(|loc| loc.site).map(|site| site.line()), Some(line));
    let failed = Linear::init(random::key(0), 3, 3, DType::I32);
    let error = Stack::from(vec![failed]).stacked().map(drop).unwrap_err();
    assert_eq!(error.message(), "weights must have a float dtype, not i32");
}

#[test]
fn inputs_of_another_number_of_layers_are_an_error() {
    let stack = Stack::init(random::key(0), 2, |key| Linear::init(key, 3, 3, DType::F32));
    let x = Tensor::ones([3], DType::F32);
    for stack in [stack.clone(), stack.stacked().unwrap()] {
        let f = |layer: &Linear, x: &Tensor, _: &Tensor| (layer.apply(x), ());
        let error = stack.scan(f, &x, &Tensor::zeros([3], DType::F32)).map(drop).unwrap_err();
        assert_eq!(error.message(), "the input is f32[3], which has no leading axis of 2 layers");
        let wrong = stack.apply(|layer, _: &Tensor| layer.apply(&Tensor::ones([4], DType::F32)), &x).unwrap_err();
        assert_eq!(wrong.operation(), "nn::Linear::apply");
    }
}
