//! Policies around the layers that a selection takes, beside checkpoints written by hand.

use remat::layer::pinned;
use remat::nn::{Attention, Block, LayerNorm, Linear, Stack};
use remat::report::saved_residuals;
use remat::{
    DType, Layers, Policy, Result, Tensor, Tree, checkpoint, checkpoint_layers, grad, jit, make_jaxpr, named_scope,
    random, tree, value_and_grad, vmap,
};

fn blocks() -> Vec<Block> {
    random::key(3).split_vec(4).into_iter().map(|key| Block::init(key, 8, 2, DType::F32)).collect()
}

fn input() -> Tensor {
    random::normal(random::key(4), [2, 6, 8], DType::F32)
}

/// A model that says nothing about checkpoints.
#[allow(clippy::ptr_arg, reason = "a slice is not a tree")]
fn plain(blocks: &Vec<Block>) -> Tensor {
    let x = blocks.iter().fold(input(), |x, block| block.apply(&x));
    x.square().mean(..)
}

/// The same with a checkpoint around each block whose number is chosen.
fn by_hand(policy: &Policy, chosen: fn(usize) -> bool) -> impl Fn(&Vec<Block>) -> Tensor {
    move |blocks| {
        let run = |x: Tensor, (i, block): (usize, &Block)| {
            checkpoint(chosen(i).then(|| policy.clone()), |x: &Tensor| block.apply(x))(&x)
        };
        blocks.iter().enumerate().fold(input(), run).square().mean(..)
    }
}

/// What the backward pass keeps, sorted, without the lines of the program.
fn kept<A: Tree>(f: impl Fn(&A) -> Tensor, x: &A) -> Vec<String> {
    let residuals = saved_residuals(f, x).unwrap();
    let mut kept: Vec<String> = residuals.iter().map(|r| format!("{} {} {:?}", r.aval, r.kind, r.through)).collect();
    kept.sort();
    kept
}

/// The bits of the loss and of all gradients.
fn bits<A: Tree>(f: impl Fn(&A) -> Tensor, x: &A) -> Vec<Vec<u32>> {
    let (loss, gradient) = jit(|x: &A| value_and_grad(&f)(x)).call(tree::map(x, Tensor::clone)).unwrap();
    let bits = |x: &Tensor| x.to_vec::<f32>().unwrap().iter().map(|x| x.to_bits()).collect();
    std::iter::once(bits(&loss)).chain(tree::leaves(&gradient).iter().map(|(_, leaf)| bits(leaf))).collect()
}

#[track_caller]
fn same<A: Tree>(selected: impl Fn(&A) -> Tensor, written: impl Fn(&A) -> Tensor, x: &A) {
    assert_eq!(kept(&selected, x), kept(&written, x));
    assert!(bits(&selected, x) == bits(&written, x));
}

#[test]
fn selected_layers_are_checkpoints_written_by_hand() {
    for policy in [Policy::Nothing, Policy::Everything, Policy::Dots, Policy::names(["attn", "mlp"])] {
        let all = checkpoint_layers("block", policy.clone(), plain);
        same(&all, by_hand(&policy, |_| true), &blocks());
        let program = |f: &dyn Fn(&Vec<Block>) -> Tensor| {
            let text = make_jaxpr(f)(&blocks()).unwrap().to_string();
            text.matches("= checkpoint[").count()
        };
        assert_eq!(program(&all), 4);
        same(
            checkpoint_layers(Layers::named("block").every(2), policy.clone(), plain),
            by_hand(&policy, |i| i % 2 == 0),
            &blocks(),
        );
        let later = Layers::matching(|path| path == "block").skip(1).every(2);
        same(checkpoint_layers(later, policy.clone(), plain), by_hand(&policy, |i| i % 2 == 1), &blocks());
    }
}

#[test]
fn no_policy_is_no_region() {
    for layers in ["block", "blok"] {
        let none: Option<Policy> = None;
        let selected = checkpoint_layers(layers, none, plain);
        same(&selected, plain, &blocks());
        assert!(!make_jaxpr(&selected)(&blocks()).unwrap().to_string().contains("checkpoint["));
    }
}

#[test]
fn what_a_function_computes_is_the_same() {
    let selected = checkpoint_layers("block", Policy::Nothing, plain);
    assert_eq!(selected(&blocks()).item::<f32>().unwrap(), jit(plain).call(blocks()).unwrap().item::<f32>().unwrap());
    assert_ne!(kept(&selected, &blocks()), kept(plain, &blocks()));
}

/// A block with a checkpoint around its attention.
fn attention_by_hand(block: &Block, x: &Tensor, policy: &Policy) -> Tensor {
    let x = x + checkpoint(policy.clone(), |y: &Tensor| block.attn.apply(y))(&block.norm1.apply(x));
    &x + block.mlp.apply(&block.norm2.apply(&x))
}

#[test]
fn selections_nest() {
    let (outer, inner) = (Policy::names(["mlp", "attn"]), Policy::Nothing);
    let written = |blocks: &Vec<Block>| {
        let run =
            |x: Tensor, block: &Block| checkpoint(outer.clone(), |x: &Tensor| attention_by_hand(block, x, &inner))(&x);
        blocks.iter().fold(input(), run).square().mean(..)
    };
    let one = checkpoint_layers("attention", inner.clone(), plain);
    let both = checkpoint_layers("block", outer.clone(), |x: &Vec<Block>| one(x));
    same(&both, written, &blocks());
    // The other way round it is the same: a block has its attention in it.
    let one = checkpoint_layers("block", outer.clone(), plain);
    let both = checkpoint_layers("block/attention", inner.clone(), |x: &Vec<Block>| one(x));
    same(&both, written, &blocks());
    // Two selections of one layer: the inner call is the inner region.
    let one = checkpoint_layers("block", inner.clone(), plain);
    let both = checkpoint_layers("block", outer.clone(), |x: &Vec<Block>| one(x));
    let twice = |blocks: &Vec<Block>| {
        let run = |x: Tensor, block: &Block| {
            let once = checkpoint(inner.clone(), |x: &Tensor| block.apply(x));
            checkpoint(outer.clone(), |x: &Tensor| once(x))(&x)
        };
        blocks.iter().fold(input(), run).square().mean(..)
    };
    same(&both, twice, &blocks());
}

#[test]
fn layers_in_loops_calls_and_batches_are_selected() {
    let policy = Policy::Dots;
    // In the body of a scan.
    let stacked = Stack::from(blocks()).stacked().unwrap();
    let in_scan = |blocks: &Stack<Block>| blocks.apply(|block, x| block.apply(x), &input()).unwrap().square().mean(..);
    let body = |blocks: &Stack<Block>| {
        let layer = |block: &Block, x: &Tensor| checkpoint(policy.clone(), |x: &Tensor| block.apply(x))(x);
        blocks.apply(layer, &input()).unwrap().square().mean(..)
    };
    same(checkpoint_layers("block", policy.clone(), in_scan), body, &stacked);
    // A region of the stack's own policy is around the selected one.
    let own = stacked.clone().with_policy(Policy::Everything);
    let nested = |blocks: &Stack<Block>| {
        let layer = |block: &Block, x: &Tensor| attention_by_hand(block, x, &Policy::Nothing);
        blocks.apply(layer, &input()).unwrap().square().mean(..)
    };
    same(checkpoint_layers("attention", Policy::Nothing, in_scan), nested, &own);

    // In a jitted function, whose program of another call is not taken.
    let jitted = jit(plain);
    jitted.call(blocks()).unwrap();
    let called = |x: &Vec<Block>| jitted.call(x.clone());
    let selected = checkpoint_layers("block", policy.clone(), called);
    let unwrapped = |x: &Vec<Block>| selected(x).unwrap();
    assert!(bits(unwrapped, &blocks()) == bits(by_hand(&policy, |_| true), &blocks()));
    let bytes = |f: &dyn Fn(&Vec<Block>) -> Tensor| saved_residuals(f, &blocks()).unwrap().intermediate_bytes();
    assert_eq!(bytes(&unwrapped), bytes(&by_hand(&policy, |_| true)));
    assert_eq!(jitted.cache_size(), 1);

    // Of a function that is batched, or differentiated, inside and outside.
    let one = |x: &Tensor| blocks().iter().fold(x.clone(), |x, block| block.apply(&x)).square().mean(..);
    let written = |x: &Tensor| {
        let run = |x: Tensor, block: &Block| checkpoint(Policy::Dots, |x: &Tensor| block.apply(x))(&x);
        blocks().iter().fold(x.clone(), run).square().mean(..)
    };
    let xs = random::normal(random::key(9), [3, 6, 8], DType::F32);
    same(
        checkpoint_layers("block", policy.clone(), |x: &Tensor| vmap(one)(x).unwrap().sum(..)),
        |x: &Tensor| vmap(written)(x).unwrap().sum(..),
        &xs,
    );
    let selected = checkpoint_layers("block", policy.clone(), one);
    same(
        |x: &Tensor| vmap(|x: &Tensor| selected(x))(x).unwrap().sum(..),
        |x: &Tensor| vmap(written)(x).unwrap().sum(..),
        &xs,
    );
    let second = checkpoint_layers("block", policy, |x: &Tensor| grad(one)(x).unwrap().square().sum(..));
    same(second, |x: &Tensor| grad(written)(x).unwrap().square().sum(..), &xs.index(0));
}

/// A user's own layer, of which several values are used outside.
#[derive(Clone, Tree)]
struct Pair {
    up: Linear,
    norm: LayerNorm,
}

impl Pair {
    #[track_caller]
    fn apply(&self, x: &Tensor) -> (Tensor, Tensor) {
        pinned(|| {
            named_scope("pair", || {
                let y = self.up.apply(x).tanh();
                (self.norm.apply(&y), y)
            })
        })
    }
}

#[test]
fn a_layer_of_a_user_may_give_several_values() {
    let pair = Pair { up: Linear::init(random::key(0), 4, 4, DType::F32), norm: LayerNorm::init(4, DType::F32) };
    let x = random::normal(random::key(1), [3, 4], DType::F32);
    let loss = |a: &Tensor, b: &Tensor| (a * b).sin().sum(..);
    let plain = |pair: &Pair| {
        let (a, b) = named_scope("model", || pair.apply(&x));
        loss(&a, &b)
    };
    let written = |pair: &Pair| {
        let (a, b) = checkpoint(Policy::Nothing, |pair: &Pair| pair.apply(&x))(pair);
        loss(&a, &b)
    };
    for pattern in ["pair", "/model/pair", "model/*", "**/pair", "/**"] {
        let selected = checkpoint_layers(pattern, Policy::Nothing, plain);
        // `/**` takes the model too: a region in a region, which keeps the same.
        let strip = |kept: Vec<String>| {
            kept.into_iter().map(|line| line.split(" [").next().unwrap().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(strip(kept(&selected, &pair)), strip(kept(written, &pair)), "{pattern}");
    }
}

#[test]
fn a_scope_that_nothing_is_used_of_is_left_alone() {
    let f = |x: &Tensor| {
        let dead = named_scope("dead", || x.sin());
        named_scope("empty", || ());
        let same = named_scope("same", || x.clone());
        drop(dead);
        same.cos()
    };
    let program = make_jaxpr(checkpoint_layers("*", Policy::Nothing, f))(&Tensor::from(1.0f32)).unwrap();
    assert_eq!(program.to_string(), "{ lambda ; a:f32[]. let _:f32[] = sin a; b:f32[] = cos a in (b,) }");
}

#[test]
fn a_body_is_traced_once_and_counted_once() {
    let f = |x: &Tensor| -> Result<Tensor> {
        let body = |x: &Tensor, (): &()| (named_scope("step", || x.sin().sin()), ());
        let options = remat::ScanOptions { length: Some(5), ..remat::ScanOptions::default() };
        Ok(remat::scan_with(&options, body, x, &())?.0)
    };
    let selected = checkpoint_layers(Layers::named("step").every(3), Policy::Nothing, f);
    let text = make_jaxpr(|x: &Tensor| selected(x))(&Tensor::from(1.0f32)).unwrap().to_string();
    assert_eq!(text.matches("= checkpoint[").count(), 1, "{text}");
    let gradient = grad(|x: &Tensor| selected(x))(&Tensor::from(1.0f32)).unwrap().item::<f32>().unwrap();
    assert_eq!(gradient, grad(f)(&Tensor::from(1.0f32)).unwrap().item::<f32>().unwrap());
}

#[test]
fn what_selects_nothing_is_an_error() {
    let message = |layers: Layers, policy: Policy| {
        let selected = checkpoint_layers(layers, policy, plain);
        let error = grad(|x: &Vec<Block>| selected(x))(&blocks()).map(drop).unwrap_err();
        assert_eq!(error.operation(), "checkpoint_layers");
        error.message().to_string()
    };
    let no = Policy::Nothing;
    assert_eq!(
        message("blocks".into(), no.clone()),
        "the pattern `blocks` matches no named scope; did you mean `block`?"
    );
    assert_eq!(
        message("block/atention".into(), no.clone()),
        "the pattern `block/atention` matches no named scope; did you mean `block/attention`?"
    );
    assert_eq!(
        message("/attention".into(), no.clone()),
        "the pattern `/attention` matches no named scope; did you mean `attention`?"
    );
    assert_eq!(
        message("encoder".into(), no.clone()),
        "the pattern `encoder` matches no named scope; there are block, block/attention, block/mlp"
    );
    assert_eq!(
        message(Layers::matching(|_| false), no.clone()),
        "the predicate holds for none of the named scopes block, block/attention, block/mlp"
    );
    assert_eq!(
        message(Layers::named("block").skip(4), no.clone()),
        "all layers that match are among the first 4, which are skipped"
    );
    assert_eq!(
        message("attention".into(), Policy::names(["atn"])),
        "the policy Names(atn) mentions the name `atn`, which no value in the selected layers has; did you mean `attn`?"
    );
    // A name in one of the layers is enough.
    let two = checkpoint_layers(Layers::matching(|path| path != "block"), Policy::names(["mlp"]), plain);
    assert!(grad(|x: &Vec<Block>| two(x))(&blocks()).is_ok());

    let line = line!() + 1;
    let bare = checkpoint_layers("block", no.clone(), |x: &Tensor| x.sin());
    let error = bare(&Tensor::from(1.0f32)).error().cloned().unwrap();
    assert_eq!(error.message(), "nothing in the function runs in a named scope, which remat::named_scope makes");
    assert_eq!(error.loc().and_then(|loc| loc.site).map(|site| site.line()), Some(line));
    // A function that returns a `Result` gets an `Err`, and its own error comes first.
    let fails = checkpoint_layers("block", no, |x: &Tensor| x.clone().to_vec::<f32>().map(|_| x.clone()));
    assert!(fails(&Tensor::from(1.0f32)).is_err());
}

#[test]
fn a_selection_ends_with_its_call() {
    let attention = Attention::init(random::key(0), 8, 2, DType::F32);
    let f = |x: &Tensor| attention.apply(x);
    let panics = checkpoint_layers("attention", Policy::Nothing, |x: &Tensor| -> Tensor {
        f(x);
        std::panic::panic_any("stop")
    });
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| panics(&input()))).is_err());
    let text = make_jaxpr(f)(&input()).unwrap().to_string();
    assert!(!text.contains("checkpoint"), "{text}");
}
