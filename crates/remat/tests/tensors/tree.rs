//! Trees: derived and built in, their paths, their order and what makes two structures equal.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use remat::tree::{Structure, leaves};
use remat::{DType, Policy, Tensor, Tree};

fn scalar(value: f32) -> Tensor {
    Tensor::from(value)
}

fn paths<T: Tree>(tree: &T) -> Vec<String> {
    leaves(tree).iter().map(|(path, _)| path.to_string()).collect()
}

fn values<T: Tree>(tree: &T) -> Vec<f32> {
    leaves(tree).iter().map(|(_, tensor)| tensor.item().unwrap()).collect()
}

fn difference<T: Tree>(a: &T, b: &T) -> Option<String> {
    let (a, b) = (Structure::of(a), Structure::of(b));
    assert_eq!(a == b, a.difference(&b).is_none());
    assert_eq!(a == b, b.difference(&a).is_none());
    a.difference(&b)
}

#[derive(Clone, Tree)]
struct Linear {
    weight: Tensor,
    bias: Option<Tensor>,
    features: usize,
}

fn linear(first: f32) -> Linear {
    Linear { weight: scalar(first), bias: Some(scalar(first + 1.0)), features: 4 }
}

#[test]
fn named_fields_in_order_of_declaration() {
    let layer = linear(1.0);
    assert_eq!(paths(&layer), ["weight", "bias"]);
    assert_eq!(values(&layer), [1.0, 2.0]);
    assert_eq!(paths(&Linear { bias: None, ..layer }), ["weight"]);
}

#[derive(Clone, Tree)]
struct Pair(Linear, Tensor);

#[derive(Clone, Tree)]
struct Marker;

#[derive(Clone, Tree)]
struct Nothing();

#[test]
fn tuple_and_unit_structs() {
    let pair = Pair(linear(1.0), scalar(3.0));
    assert_eq!(paths(&pair), ["0.weight", "0.bias", "1"]);
    assert_eq!(values(&pair), [1.0, 2.0, 3.0]);
    assert!(paths(&Marker).is_empty());
    assert!(paths(&Nothing()).is_empty());
    assert_eq!(difference(&Marker, &Marker), None);
}

#[derive(Clone, Tree)]
struct Model<T, const N: usize>
where
    T: Clone,
{
    blocks: Vec<T>,
    named: BTreeMap<String, T>,
    fixed: [T; N],
    boxed: Box<T>,
    maybe: Option<Option<T>>,
    pair: (T, (Tensor,)),
    r#type: DType,
    policy: Policy,
}

#[test]
fn nested_containers() {
    let model = Model {
        blocks: vec![linear(1.0), linear(3.0)],
        named: BTreeMap::from([("b".to_string(), linear(7.0)), ("a".to_string(), linear(5.0))]),
        fixed: [linear(9.0)],
        boxed: Box::new(linear(11.0)),
        maybe: Some(Some(linear(13.0))),
        pair: (linear(15.0), (scalar(17.0),)),
        r#type: DType::F32,
        policy: Policy::Nothing,
    };
    assert_eq!(
        paths(&model),
        [
            "blocks.0.weight",
            "blocks.0.bias",
            "blocks.1.weight",
            "blocks.1.bias",
            "named.a.weight",
            "named.a.bias",
            "named.b.weight",
            "named.b.bias",
            "fixed.0.weight",
            "fixed.0.bias",
            "boxed.weight",
            "boxed.bias",
            "maybe.weight",
            "maybe.bias",
            "pair.0.weight",
            "pair.0.bias",
            "pair.1.0",
        ]
    );
    assert_eq!(values(&model), (1..=17).map(|i| i as f32).collect::<Vec<_>>());

    let cases: [(&str, Box<dyn Fn(&mut Model<Linear, 1>)>); 8] = [
        ("2 elements against 1 element at `blocks`", Box::new(|m| drop(m.blocks.pop()))),
        ("an element `b` against an element `c` at `named`", {
            Box::new(|m| {
                let old = m.named.remove("b").unwrap();
                m.named.insert("c".to_string(), old);
            })
        }),
        ("the variant `Some` against the variant `None` at `fixed.0.bias`", Box::new(|m| m.fixed[0].bias = None)),
        ("the values of type usize at `boxed.features` differ", Box::new(|m| m.boxed.features = 5)),
        ("the variant `Some` against the variant `None` at `maybe`", Box::new(|m| m.maybe = None)),
        ("the variant `Some` against the variant `None` at `maybe`", Box::new(|m| m.maybe = Some(None))),
        ("the values of type remat_ir::dtype::DType at `type` differ", Box::new(|m| m.r#type = DType::F16)),
        ("the values of type remat_ir::policy::Policy at `policy` differ", {
            Box::new(|m| m.policy = Policy::Everything)
        }),
    ];
    for (expected, change) in cases {
        let mut other = model.clone();
        change(&mut other);
        assert_eq!(difference(&model, &other).as_deref(), Some(expected));
    }
    let mut same = model.clone();
    same.fixed[0].weight = Tensor::from(vec![1.0f32; 3]);
    assert_eq!(difference(&model, &same), None, "the shape of a leaf is not a structure");
}

#[derive(Clone, PartialEq, Debug, Hash)]
enum Padding {
    Same,
    Explicit(Vec<(usize, usize)>),
}

#[derive(Clone, Tree)]
struct Conv {
    kernel: Tensor,
    #[tree(static)]
    padding: Padding,
}

#[derive(Clone, Tree)]
struct Named<T>(Tensor, #[tree(static)] T);

#[test]
fn static_fields() {
    let conv = |padding| Conv { kernel: scalar(1.0), padding };
    assert_eq!(paths(&conv(Padding::Same)), ["kernel"]);
    let explicit = || conv(Padding::Explicit(vec![(1, 2)]));
    assert_eq!(difference(&explicit(), &explicit()), None);
    assert_eq!(explicit().padding, Padding::Explicit(vec![(1, 2)]));
    let message = "the values of type tensors::tree::Padding at `padding` differ";
    assert_eq!(difference(&conv(Padding::Same), &explicit()).as_deref(), Some(message));
    assert!(difference(&explicit(), &conv(Padding::Explicit(vec![(1, 3)]))).is_some());

    let message = "the values of type tensors::tree::Padding at `1` differ";
    let named = |padding| Named(scalar(1.0), padding);
    assert_eq!(difference(&named(Padding::Same), &named(Padding::Explicit(vec![]))).as_deref(), Some(message));
}

#[test]
fn equal_records_mean_equal_values() {
    assert_eq!(difference(&(0.0f32, 1.5f64), &(0.0f32, 1.5f64)), None);
    assert!(difference(&0.0f32, &-0.0f32).is_some(), "a function may tell the two zeros apart");
    assert_eq!(difference(&f32::NAN, &f32::NAN), None);
    assert!(difference(&true, &false).is_some());
    assert!(difference(&'a', &'b').is_some());
    assert!(difference(&"a", &"b").is_some());
    assert!(difference(&("ab".to_string(), "c".to_string()), &("a".to_string(), "bc".to_string())).is_some());
    assert!(difference(&vec![1i8], &vec![2i8]).is_some());
    assert!(difference(&(1i16, 2i32, 3i64, 4isize), &(1i16, 2i32, 3i64, 5isize)).is_some());
    assert!(difference(&(1u8, 2u16, 3u32, 4u64), &(1u8, 2u16, 3u32, 5u64)).is_some());
}

#[derive(Clone, Tree)]
enum Layer<T> {
    Identity,
    Scale(Tensor),
    Residual { inner: Box<Layer<T>>, gate: T },
    Sequence(Vec<Self>, usize),
}

#[test]
fn enums_and_recursion() {
    let layer = |last: Layer<Tensor>| {
        let residual = Layer::Residual { inner: Box::new(Layer::Scale(scalar(1.0))), gate: scalar(2.0) };
        Layer::Sequence(vec![residual, Layer::Identity, last], 3)
    };
    let tree = layer(Layer::Scale(scalar(3.0)));
    assert_eq!(paths(&tree), ["0.0.inner.0", "0.0.gate", "0.2.0"]);
    assert_eq!(values(&tree), [1.0, 2.0, 3.0]);
    assert_eq!(
        difference(&tree, &layer(Layer::Identity)).as_deref(),
        Some("the variant `Scale` against the variant `Identity` at `0.2`")
    );
    assert_eq!(difference(&tree, &tree.clone()), None);
}

#[derive(Clone, Tree)]
#[allow(dead_code)]
enum Never {}

/// The parameter of a marker needs no bound, so this is a tree for a type that is none.
#[derive(Clone, Tree)]
struct Tagged<T> {
    value: Tensor,
    tag: PhantomData<T>,
    never: Option<Never>,
}

#[test]
fn markers_and_empty_enums() {
    struct NoTree;
    let tagged = Tagged::<NoTree> { value: scalar(1.0), tag: PhantomData, never: None };
    assert_eq!(paths(&tagged), ["value"]);
}

#[test]
fn tuples_to_eight() {
    let s = scalar;
    assert_eq!(paths(&()), [""; 0]);
    assert_eq!(paths(&s(0.0)), [""]);
    assert_eq!(paths(&(s(0.0),)), ["0"]);
    assert_eq!(paths(&(s(0.0), s(1.0))), ["0", "1"]);
    assert_eq!(values(&(s(0.0), s(1.0), s(2.0))), [0.0, 1.0, 2.0]);
    assert_eq!(values(&(s(0.0), s(1.0), s(2.0), s(3.0))).len(), 4);
    assert_eq!(values(&(s(0.0), s(1.0), s(2.0), s(3.0), s(4.0))).len(), 5);
    assert_eq!(values(&(s(0.0), s(1.0), s(2.0), s(3.0), s(4.0), s(5.0))).len(), 6);
    assert_eq!(values(&(s(0.0), s(1.0), s(2.0), s(3.0), s(4.0), s(5.0), s(6.0))).len(), 7);
    let eight = (s(0.0), s(1.0), s(2.0), s(3.0), s(4.0), s(5.0), s(6.0), s(7.0));
    assert_eq!(values(&eight), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    assert_eq!(paths(&eight), ["0", "1", "2", "3", "4", "5", "6", "7"]);
}

#[test]
fn empty_containers() {
    assert!(paths(&Vec::<Tensor>::new()).is_empty());
    assert!(paths(&BTreeMap::<u8, Tensor>::new()).is_empty());
    assert!(paths(&[(); 3]).is_empty());
    let empty: [Tensor; 0] = [];
    assert!(paths(&empty).is_empty());
}
