//! Random numbers: bit for bit those of JAX's default generator.
//!
//! A [`Key`] is the whole state: a sampler is a pure function of its key, so it can be traced, mapped and recomputed, and
//! a recomputed dropout mask is the mask of the forward pass. A sampler takes its key by value, and a key can neither be
//! copied nor cloned, so using one twice does not compile:
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
//! The generator is Threefry-2x32 as JAX uses it by default (`jax_threefry_partitionable`). Keys, [`bits`], [`uniform`],
//! [`randint`], [`bernoulli`] and [`permutation`] have JAX's bits. What goes through a logarithm or an error function
//! ([`normal`], [`truncated_normal`], [`gumbel`], [`exponential`]) is computed of the same uniform numbers and differs from
//! JAX by the errors of these functions, which engines do not share: in f16 and bf16 not at all, in f32 by up to 8 epsilon,
//! in f64 by up to 64, which are XLA's. [`categorical`] and weighted [`choice`] compare such numbers.
//!
//! JAX compiles several operations as one, and may then round less often: its `uniform` of another range than 0 to 1 is
//! ours when each of its operations runs alone. Without `jax_enable_x64` JAX has no 64-bit dtypes; with it, these have its
//! bits too.
//!
//! Source of the generator: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

mod discrete;
mod float;
mod integer;
mod key;
mod ops;

pub use discrete::{Choice, bernoulli, categorical, choice, permutation, permuted, shuffle};
pub use float::{exponential, gumbel, normal, truncated_normal, uniform};
pub use integer::{bits, randint};
pub use key::{Key, key};
