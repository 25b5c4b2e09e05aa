//! Rules of the derivative of cross entropy.

use remat_ir::{Array, Atom, Aval, Builder, CrossEntropyTangent, DType, Result};

use super::sample::{any, array};
use super::{Batched, Emit, Linear, Operand, Rules, Sample, differentiate};

impl Rules for CrossEntropyTangent {
    fn jvp(&self, b: &mut Builder, ins: &[Atom], _outs: &[Atom], tangents: &[Option<Atom>]) -> Result<Linear> {
        if let [None, None, None, Some(t)] = *tangents {
            return Ok(vec![Some(b.apply(*self, &[ins[0], ins[1], ins[2], t])?)]);
        }
        let avals: Vec<Aval> = ins.iter().map(|&a| b.aval(a)).collect();
        differentiate(b, &self.definition(&avals)?, ins, tangents)
    }

    /// The cotangent times the weights: one expression of logits, logarithms and labels.
    fn transpose(&self, b: &mut Builder, cotangents: &[Option<Atom>], ins: &[Operand]) -> Result<Linear> {
        let known = ins[..3].iter().map(|x| x.known(self)).collect::<Result<Vec<Atom>>>()?;
        let Some(ct) = cotangents[0] else { return Ok(vec![None; 4]) };
        let weights = self.weights(b, &known)?;
        let shape = b.shape(weights);
        let places: Vec<usize> = (0..shape.len() - 1).collect();
        let ct = b.broadcast(ct, &shape, &places)?;
        let product = b.mul(weights, ct)?;
        let dtype = b.dtype(known[0]);
        Ok(vec![None, None, None, Some(b.convert(product, dtype)?)])
    }

    fn vmap(&self, b: &mut Builder, size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
        let operands = ins.iter().map(|&x| b.batch_front(x, size)).collect::<Result<Vec<Atom>>>()?;
        Ok(vec![Batched::front(b.apply(*self, &operands)?)])
    }

    fn samples() -> Vec<Sample> {
        let sample = |label: &str, dtype: DType, shape: &[usize], labels: Array| {
            let places = labels.shape().to_vec();
            let logsumexp = array(dtype.wide(), &places, &[2.5, 1.75, 3.0]);
            let inputs = vec![any(dtype, shape), labels, logsumexp, any(dtype, shape)];
            Sample::new(label, CrossEntropyTangent, inputs).linear_in(&[3])
        };
        let labels = |shape: &[usize]| array(DType::I32, shape, &[1.0, 0.0, 2.0, 7.0, -1.0]);
        let mut samples = vec![
            sample("one place", DType::F64, &[4], labels(&[])),
            sample("places", DType::F64, &[5, 3], labels(&[5])),
            sample("places in two dimensions", DType::F64, &[2, 3, 4], labels(&[2, 3])),
            sample("wide labels", DType::F64, &[2, 3], array(DType::I64, &[2], &[2.0, 1.0])),
            sample("no places", DType::F64, &[0, 3], labels(&[0])),
            sample("no classes", DType::F64, &[2, 0], labels(&[2])),
        ];
        samples.extend([DType::F16, DType::Bf16, DType::F32].map(|d| sample(d.name(), d, &[5, 3], labels(&[5]))));
        samples
    }
}
