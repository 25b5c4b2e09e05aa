//! Samples of attention.

use remat_ir::{
    Array, DType, DotProductAttention, DotProductAttentionCotangent, DotProductAttentionTangent, Literal, Op, eval_op,
};

use super::sample::{any, array};
use super::{Sample, Samples};

impl Samples for DotProductAttention {
    fn samples() -> Vec<Sample> {
        let sample = |case: Case| Sample::new(case.label, case.attention, case.inputs).linear_in(&[2]);
        cases().into_iter().map(sample).collect()
    }
}

impl Samples for DotProductAttentionTangent {
    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        let sample = |label: String, case: &Case, tangents: [bool; 4]| {
            let differentiable = case.differentiable();
            let given = differentiable.iter().zip(tangents).filter(|(_, given)| *given);
            let tangents_of = given.filter_map(|(x, _)| x.as_ref().map(other_values));
            let inputs: Vec<Array> = case.inputs.iter().cloned().chain(case.results()).chain(tangents_of).collect();
            let linear: Vec<usize> = (case.inputs.len() + 2..inputs.len()).collect();
            let op = DotProductAttentionTangent { attention: case.attention, tangents };
            Sample::new(label, op, inputs).linear_in(&linear)
        };
        for case in cases() {
            samples.push(sample(case.label.to_owned(), &case, [true, true, true, case.attention.bias]));
        }
        for i in 0..4 {
            let case = biased();
            samples.push(sample(format!("tangent {i} alone"), &case, [0, 1, 2, 3].map(|k| k == i)));
        }
        samples
    }
}

impl Samples for DotProductAttentionCotangent {
    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        let sample = |label: String, case: &Case, cotangents: [bool; 4], logsumexp: bool| {
            let results = case.results();
            let cts = results.iter().take(1 + usize::from(logsumexp)).map(other_values);
            let inputs: Vec<Array> = case.inputs.iter().chain(&results).cloned().chain(cts).collect();
            let linear: Vec<usize> = (case.inputs.len() + 2..inputs.len()).collect();
            let op = DotProductAttentionCotangent { attention: case.attention, cotangents, logsumexp };
            Sample::new(label, op, inputs).linear_in(&linear)
        };
        for case in cases() {
            let all = [true, true, true, case.attention.bias];
            samples.push(sample(case.label.to_owned(), &case, all, false));
            samples.push(sample(format!("{}, both results", case.label), &case, all, true));
        }
        for i in 0..4 {
            let case = biased();
            samples.push(sample(format!("cotangent {i} alone"), &case, [0, 1, 2, 3].map(|k| k == i), true));
        }
        samples
    }
}

/// An attention to make samples of.
struct Case {
    label: &'static str,
    attention: DotProductAttention,
    inputs: Vec<Array>,
}

impl Case {
    /// An attention of `[batch, positions, heads, features]` queries and such keys, with values of as many features and one.
    fn new(label: &'static str, dtype: DType, query: [usize; 4], key: [usize; 4]) -> Case {
        let scale = Literal::from_f64(DType::F64, 0.7);
        let [batch, positions, heads, features] = key;
        let inputs = vec![any(dtype, &query), any(dtype, &key), any(dtype, &[batch, positions, heads, features + 1])];
        Case { label, attention: DotProductAttention { scale, causal: false, bias: false, mask: false }, inputs }
    }

    fn causal(mut self) -> Case {
        self.attention.causal = true;
        self
    }

    fn biased(mut self, shape: [usize; 4]) -> Case {
        self.attention.bias = true;
        self.inputs.push(any(self.inputs[0].dtype(), &shape));
        self
    }

    fn masked(mut self, shape: [usize; 4], mask: &[f64]) -> Case {
        self.attention.mask = true;
        self.inputs.push(array(DType::Bool, &shape, mask));
        self
    }

    fn results(&self) -> Vec<Array> {
        eval_op(&Op::from(self.attention), &self.inputs).expect("the case is well formed")
    }

    fn differentiable(&self) -> [Option<Array>; 4] {
        let own = self.attention.operands(&self.inputs);
        [Some(own.query), Some(own.key), Some(own.value), own.bias].map(Option::<&Array>::cloned)
    }
}

fn biased() -> Case {
    Case::new("bias", DType::F64, [2, 3, 2, 2], [2, 2, 2, 2]).biased([2, 2, 3, 2])
}

fn cases() -> Vec<Case> {
    let case = |label, query, key| Case::new(label, DType::F64, query, key);
    let mut cases = vec![
        case("every key", [2, 3, 2, 3], [2, 4, 2, 3]),
        case("causal", [1, 3, 2, 2], [1, 3, 2, 2]).causal(),
        case("causal, more queries", [1, 4, 1, 2], [1, 2, 1, 2]).causal(),
        case("causal, more keys", [1, 2, 1, 2], [1, 4, 1, 2]).causal(),
        case("heads share keys", [2, 2, 6, 2], [2, 3, 2, 2]),
        case("all heads share keys", [1, 3, 3, 2], [1, 3, 1, 2]).causal(),
        biased(),
        case("bias of the positions", [2, 3, 2, 2], [2, 2, 2, 2]).biased([1, 1, 3, 2]),
        case("bias of the heads", [2, 3, 4, 2], [2, 2, 2, 2]).biased([2, 4, 1, 1]),
        case("mask", [2, 3, 2, 2], [2, 4, 2, 2]).masked([2, 2, 3, 4], &[1.0, 0.0, 1.0, 1.0, 1.0]),
        case("bias and mask of keys", [2, 3, 2, 2], [2, 4, 2, 2])
            .biased([1, 2, 1, 4])
            .masked([2, 1, 1, 4], &[1.0, 1.0, 0.0, 1.0, 0.0])
            .causal(),
        case("rows without a key", [1, 3, 1, 2], [1, 2, 1, 2]).masked([1, 1, 3, 1], &[1.0, 0.0, 1.0]),
        case("no keys", [1, 2, 2, 2], [1, 0, 2, 2]),
        case("no queries", [1, 0, 2, 2], [1, 2, 2, 2]).causal(),
        case("no features", [1, 2, 1, 0], [1, 3, 1, 0]),
        case("no heads", [1, 2, 0, 2], [1, 3, 0, 2]),
        case("no batch", [0, 2, 1, 2], [0, 3, 1, 2]).biased([1, 1, 2, 3]),
    ];
    for dtype in [DType::F16, DType::Bf16, DType::F32] {
        cases.push(Case::new(dtype.name(), dtype, [1, 3, 4, 2], [1, 3, 2, 2]).causal().biased([1, 4, 1, 3]));
    }
    cases
}

/// Other values of the same dtype and shape.
fn other_values(x: &Array) -> Array {
    let values = [0.5, -1.0, 0.25, 1.5, -0.75, 1.0, -0.125];
    array(x.dtype(), x.shape(), &values)
}
