//! Random numbers of JAX's default generator: keys and bits exactly, and distributions that use a logarithm up to rounding.
//!
//! A [`Key`] is the whole state. A sampler is a pure function of its key, so it can be traced, mapped and recomputed, and a recomputed
//! dropout mask equals that of the forward pass. A sampler takes its key by value, and a key can be neither copied nor cloned, so using one
//! twice does not compile:
//!
//! ```compile_fail,E0382
//! use remat::{DType, random};
//! let key = random::key(0);
//! let x = random::normal(key, [2], DType::F32);
//! let y = random::normal(key, [2], DType::F32); // would be the same numbers
//! ```
//!
//! Split it instead:
//!
//! ```
//! use remat::{DType, random};
//! let [for_x, for_y] = random::key(0).split();
//! let x = random::normal(for_x, [2], DType::F32);
//! let y = random::normal(for_y, [2], DType::F32);
//! assert_ne!(x.to_vec::<f32>()?, y.to_vec::<f32>()?);
//! # Ok::<(), remat::Error>(())
//! ```
//!
//! # What equals JAX
//!
//! The generator is Threefry-2x32 as JAX uses it by default (`jax_threefry_partitionable`). Keys, [`bits`], [`uniform`], [`randint`],
//! [`bernoulli`] and [`permutation`] have JAX's bits. Distributions that use a logarithm or an error function ([`normal`],
//! [`truncated_normal`], [`gumbel`], [`exponential`]) are computed from the same uniform numbers. They differ from JAX by the rounding
//! errors of these functions, which vary between engines: not at all in f16 and bf16, by up to 8 epsilon in f32, and by up to 64 epsilon in
//! f64, where the errors are XLA's. [`categorical`] and weighted [`choice`] compare such numbers.
//!
//! [`gamma`], [`log_gamma`], [`beta`], [`dirichlet`] and [`poisson`] make proposals until one is accepted, from JAX's keys and in its order.
//! They compare such numbers too, so that rarely another proposal is accepted and another number drawn. With Poisson rates of 1000 and more
//! that is not rare, since JAX's formula has errors there that ours has not. Where JAX draws from concentrations or rates that have no
//! distribution, or gives a derivative of a number that is too small for the dtype, the functions say what they do.
//!
//! JAX compiles several operations as one, and may then round less often: its `uniform` in a range other than 0 to 1 equals this one if JAX
//! runs each of the operations alone. Without `jax_enable_x64` JAX has no 64-bit dtypes; with it, their bits are equal too.
//!
//! Source of the generator: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

mod discrete;
mod float;
mod gamma;
mod gamma_slope;
mod integer;
mod key;
mod ops;
mod poisson;

pub use discrete::{Choice, bernoulli, categorical, choice, permutation, permuted, shuffle};
pub use float::{exponential, gumbel, normal, truncated_normal, uniform};
pub use gamma::{beta, dirichlet, gamma, log_gamma};
pub use integer::{bits, randint};
pub use key::{Key, key};
pub use poisson::poisson;

#[cfg(test)]
mod tests {
    use remat_ir::{Array, Loc, Result};

    use super::*;
    use crate::trace::{structure, trace_tree};
    use crate::{DType, Tensor, Tree};

    /// Checks that a traced function draws the same numbers as the function itself.
    fn check<R: Tree>(f: impl Fn(&Key) -> R) -> Result<()> {
        let key = key(1701);
        let (program, _) = trace_tree(&key, Loc::default(), &f)?;
        let bits = |array: &Array| (0..array.data().len()).map(|i| array.data().get(i)).collect::<Vec<_>>();
        let inputs = program.captured.iter().chain([key.data()]).map(|x| x.array().cloned()).collect::<Result<_>>()?;
        let staged = remat_ir::eval(&program.jaxpr, inputs)?;
        for (staged, drawn) in staged.iter().zip(structure(&f(&key)).0) {
            assert_eq!((staged.aval(), bits(staged)), (drawn.aval()?, bits(drawn.array()?)));
        }
        Ok(())
    }

    #[test]
    fn traced_draws_are_the_same() -> Result<()> {
        for dtype in [DType::F16, DType::Bf16, DType::F32, DType::F64] {
            check(|key| {
                let [a, b, c, d] = key.fold_in(3).split();
                let x = normal(a, [2, 3], dtype);
                (
                    truncated_normal(b, [3], dtype, -1..1),
                    exponential(c, (), dtype),
                    uniform(d, [2, 3], dtype, &x..&(&x + 1)),
                )
            })?;
        }
        check(|key| {
            let [a, b, c] = key.reuse().split();
            let weights = Choice { p: Some(Tensor::new([0.5f32, 0.25, 0.25])), ..Choice::default() };
            (randint(a, [4], DType::U8, 0..256), permutation(b, 10), choice(c, [4], 3, &weights), key.reuse())
        })?;
        check(|key| categorical(key.reuse(), [4], &Tensor::new([0.5f32, 0.25, 0.25]).log(), 0))
    }

    #[test]
    fn more_than_32_bits_of_counter() -> Result<()> {
        let (program, _) =
            trace_tree(&key(0), Loc::default(), |key| bits(key.reuse(), [1usize << 20, 1 << 14], DType::U8))?;
        assert_eq!(program.jaxpr.out_avals()[0].to_string(), "u8[1048576,16384]");
        assert!(program.jaxpr.to_string().contains("u64[17179869184]"));
        Ok(())
    }
}
