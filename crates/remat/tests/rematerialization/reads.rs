//! What is read T times costs one array, not T: the gradients of stacked weights, of time steps, of embeddings, of a shared weight and of
//! columns, read by hand and in unrolled loops, under every policy.

use remat::ir::eval;
use remat::{Jitted, Policy, Result, ScanOptions, Tensor, checkpoint, grad, jit, scan_with};

const WIDTH: usize = 64;
const BATCH: usize = 16;

/// The bytes of one activation.
const ACTIVATION: usize = BATCH * WIDTH * 4;

/// What is read, a part in each step.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Read {
    Weights,
    Steps,
    Embeddings,
    Shared,
    Columns,
}

/// The activations before the first step, the array that is read, and the rows to look up in each step, some of them twice.
type Args = (Tensor, Tensor, Tensor);

impl Read {
    const ALL: [Read; 5] = [Read::Weights, Read::Steps, Read::Embeddings, Read::Shared, Read::Columns];

    fn args(self, count: usize) -> Args {
        let (first, array): (&[usize], &[usize]) = match self {
            Read::Weights => (&[BATCH, WIDTH], &[count, WIDTH, WIDTH]),
            Read::Steps => (&[BATCH, WIDTH], &[count, BATCH, WIDTH]),
            Read::Embeddings => (&[BATCH, WIDTH], &[1024, WIDTH]),
            Read::Shared => (&[BATCH, WIDTH], &[WIDTH, WIDTH]),
            Read::Columns => (&[BATCH * WIDTH], &[BATCH * WIDTH, count]),
        };
        let ids = Tensor::arange(0..(count * BATCH) as i64).reshape([count, BATCH]) * 7 % 11;
        (data(first, 1), data(array, 2), ids)
    }

    /// The part that a step reads.
    fn part(self, array: &Tensor, ids: &Tensor, step: usize) -> Tensor {
        match self {
            Read::Weights | Read::Steps => array.index(step),
            Read::Embeddings => array.take(ids, 0),
            Read::Shared => array.clone(),
            Read::Columns => array.index((.., step)),
        }
    }

    fn layer(self, x: &Tensor, part: &Tensor) -> Tensor {
        match self {
            Read::Weights | Read::Shared => x.matmul(part).tanh(),
            Read::Steps | Read::Embeddings | Read::Columns => (x * 0.5 + part).tanh(),
        }
    }

    /// All steps, one after the other.
    fn by_hand(self, policy: Option<&Policy>, count: usize, (first, array, ids): &Args) -> Result<Tensor> {
        let step = |x: Tensor, step: usize| {
            let ids = ids.index(step);
            region(policy, &x, array, |x, array| self.layer(x, &self.part(array, &ids, step)))
        };
        Ok((0..count).fold(first.clone(), step).sum(..))
    }

    /// All steps, as a loop, so many at once.
    fn looped(
        self,
        policy: Option<&Policy>,
        count: usize,
        unroll: usize,
        (first, array, ids): &Args,
    ) -> Result<Tensor> {
        let whole = ScanOptions { length: Some(count), unroll, ..ScanOptions::default() };
        let layer = |x: &Tensor, part: &Tensor| (region(policy, x, part, |x, part| self.layer(x, part)), ());
        let look_up = |x: &Tensor, ids: &Tensor| {
            (region(policy, x, array, |x, array| self.layer(x, &self.part(array, ids, 0))), ())
        };
        let (last, ()) = match self {
            Read::Weights | Read::Steps => scan_with(&whole, layer, first, array),
            Read::Columns => scan_with(&whole, layer, first, &array.t()),
            Read::Embeddings => scan_with(&whole, look_up, first, ids),
            Read::Shared => scan_with(&whole, |x: &Tensor, (): &()| layer(x, array), first, &()),
        }?;
        Ok(last.sum(..))
    }

    /// The bytes that the gradient may need: an eleventh more than the array and its gradient, the activations of all steps, a loop's tiles,
    /// and for weights the newest term.
    fn most(self, count: usize) -> Result<usize> {
        let (_, array, ids) = self.args(count);
        let term = match self {
            Read::Weights | Read::Shared => WIDTH * WIDTH * 4,
            Read::Steps | Read::Columns | Read::Embeddings => 0,
        };
        let activations = match self {
            // The operand of each product, and what its derivative needs.
            Read::Weights | Read::Shared => 2 * count * ACTIVATION,
            Read::Steps | Read::Columns | Read::Embeddings => count * ACTIVATION,
        };
        let fixed = 2 * array.aval()?.bytes() + ids.aval()?.bytes() + 12 * ACTIVATION;
        Ok((fixed + activations + term) * 11 / 10)
    }
}

/// Numbers from -0.2 to 0.2.
fn data(shape: &[usize], seed: usize) -> Tensor {
    let size: usize = shape.iter().product();
    let number = |i: usize| ((i * 7919 + seed * 31) % 1009) as f32 / 2522.5 - 0.2;
    Tensor::from_vec((0..size).map(number).collect::<Vec<f32>>(), shape)
}

/// A layer, as a checkpointed region if there is a policy.
fn region(policy: Option<&Policy>, x: &Tensor, array: &Tensor, f: impl Fn(&Tensor, &Tensor) -> Tensor) -> Tensor {
    let f = |(x, array): &(Tensor, Tensor)| f(x, array);
    let args = (x.clone(), array.clone());
    policy.map_or_else(|| f(&args), |policy| checkpoint(policy.clone(), &f)(&args))
}

/// The gradient of the array in one program, for its memory and its bits.
fn gradient(loss: &dyn Fn(&Args) -> Result<Tensor>) -> Jitted<Args, Result<Tensor>, impl Fn(&Args) -> Result<Tensor>> {
    jit(move |(first, array, ids): &Args| {
        grad(|array: &Tensor| loss(&(first.clone(), array.clone(), ids.clone())))(array)
    })
}

fn policies() -> [Option<Policy>; 4] {
    [None, Some(Policy::Everything), Some(Policy::Dots), Some(Policy::Nothing)]
}

#[test]
fn what_is_read_many_times_costs_one_array() -> Result<()> {
    for (read, count) in Read::ALL.into_iter().flat_map(|read| [(read, 12), (read, 96)]) {
        let (args, most) = (read.args(count), read.most(count)?);
        let mut peaks = Vec::new();
        for policy in policies() {
            let by_hand = |args: &Args| read.by_hand(policy.as_ref(), count, args);
            let unrolled = |args: &Args| read.looped(policy.as_ref(), count, count, args);
            for (how, loss) in [("by hand", &by_hand as &dyn Fn(&Args) -> Result<Tensor>), ("unrolled", &unrolled)] {
                let peak = gradient(loss).memory(&args)?.peak;
                // A loop stacks along the first axis, and what it stacks is transposed after it.
                let is_transposed = read == Read::Columns && how == "unrolled";
                let most = if is_transposed { most + args.1.aval()?.bytes() } else { most };
                assert!(peak <= most, "{count} {read:?} {how} under {policy:?}: {peak} bytes, more than {most}");
                peaks.push(peak);
            }
        }
        // A checkpoint saves the activations of products.
        let [first, .., last] = peaks[..] else { continue };
        if matches!(read, Read::Weights | Read::Shared) {
            assert!(
                last + count / 2 * ACTIVATION <= first,
                "{count} {read:?}: {first} bytes, under a checkpoint {last}"
            );
        }
    }
    Ok(())
}

#[test]
fn stacked_weights_cost_what_weights_apart_do() -> Result<()> {
    for count in [12, 96] {
        let (first, stacked, ids) = Read::Weights.args(count);
        let apart: Vec<Tensor> = (0..count).map(|i| stacked.index(i)).collect();
        let stacked_bytes = stacked.aval()?.bytes();
        for policy in policies() {
            let layer = |x: Tensor, w: &Tensor| region(policy.as_ref(), &x, w, |x, w| Read::Weights.layer(x, w));
            let of_apart = jit(grad(|ws: &Vec<Tensor>| ws.iter().fold(first.clone(), layer).sum(..)));
            let by_hand = |args: &Args| Read::Weights.by_hand(policy.as_ref(), count, args);
            let peak = gradient(&by_hand).memory(&(first.clone(), stacked.clone(), ids.clone()))?.peak;
            // Temporaries lie in gradients that are not yet written, but not in one that all layers write.
            let of_apart = of_apart.memory(&apart)?.peak + stacked_bytes;
            assert!(peak * 10 <= of_apart * 11, "{count} layers under {policy:?}: {peak} bytes, and apart {of_apart}");
        }
    }
    Ok(())
}

#[test]
fn parts_are_written_where_they_are() -> Result<()> {
    for read in [Read::Weights, Read::Steps, Read::Columns] {
        let by_hand = |args: &Args| read.by_hand(None, 24, args);
        let steps = gradient(&by_hand).steps(&read.args(24))?;
        assert_eq!(steps.matches("= dynamic_update_slice").count(), 24, "{steps}");
        assert_eq!(steps.matches("= pad").count(), 0, "{steps}");
    }
    Ok(())
}

#[test]
fn gradients_are_those_of_the_definition_with_the_same_bits_however_they_are_written() -> Result<()> {
    const COUNT: usize = 12;
    for read in Read::ALL {
        let args = read.args(COUNT);
        let by_hand = |args: &Args| read.by_hand(None, COUNT, args);
        let plain = gradient(&by_hand);
        let got = plain.call(args.clone())?.to_vec::<f32>()?;
        let arrays = [&args.0, &args.1, &args.2].map(|x| x.array().cloned());
        let arrays = arrays.into_iter().collect::<Result<Vec<_>>>()?;
        let expected = eval(&*plain.jaxpr(&args)?, arrays)?.remove(0);
        let expected = expected.as_slice::<f32>().expect("f32");
        let most = expected.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
            assert!(
                (got - expected).abs() <= 1e-5 * most,
                "{read:?}, element {i}: {got}, and by definition {expected}"
            );
        }
        let bits: Vec<u32> = got.iter().map(|x| x.to_bits()).collect();
        for policy in policies() {
            for unroll in [0, 1, 5, COUNT] {
                let loss = |args: &Args| match unroll {
                    0 => read.by_hand(policy.as_ref(), COUNT, args),
                    _ => read.looped(policy.as_ref(), COUNT, unroll, args),
                };
                let other = gradient(&loss).call(args.clone())?.to_vec::<f32>()?;
                let same = other.iter().map(|x| x.to_bits()).eq(bits.iter().copied());
                assert!(same, "{read:?} under {policy:?}, {unroll} iterations at once");
            }
        }
    }
    Ok(())
}
