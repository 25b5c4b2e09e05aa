//! From which sizes on an algorithm of attention pays.

/// Most queries of a key head, over all heads that share it, that are attended to one by one, while keys and values are read once. The tiles
/// of the general kernel have columns for at least sixteen. Measured in docs/EXPERIMENTS.md, "Attention", row "One query and a long cache":
/// 65,536 keys of 128 features 15.4 → 8.4 ms; where it ends was set by trying, and no figures were kept.
pub(super) const FEW_QUERIES: usize = 8;
