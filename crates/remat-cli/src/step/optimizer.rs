//! One type for all optimizers of a run.

use remat::optim::{
    Adafactor, Adam8bit, AdamW, Factored, Lion, Mask, Moments, Moments8bit, Momentum, Muon, MuonMoments, Optimizer,
    Schedule, Sgd, Velocity,
};
use remat::tree::Walk;
use remat::{Error, ErrorKind, Result, Tree};

use crate::config::{Config, OptimizerName};

/// One of the library's optimizers.
pub(crate) enum AnyOptimizer {
    AdamW(AdamW),
    Adafactor(Adafactor),
    Adam8bit(Adam8bit),
    Lion(Lion),
    Sgd(Sgd),
    Muon(Muon),
}

/// The state of an [`AnyOptimizer`].
#[derive(Clone)]
pub(crate) enum OptimizerState<M> {
    AdamW(Moments<M>),
    Adafactor(Factored<M>),
    Adam8bit(Moments8bit<M>),
    Lion(Momentum<M>),
    Sgd(Velocity<M>),
    Muon(MuonMoments<M>),
}

/// The paths are those of the inner state.
impl<M: Tree> Tree for OptimizerState<M> {
    fn map_leaves(&self, walk: &mut Walk<'_>) -> Self {
        macro_rules! walked {
            ($($variant:ident)*) => {
                match self {
                    $(OptimizerState::$variant(state) => {
                        walk.variant(stringify!($variant));
                        OptimizerState::$variant(state.map_leaves(walk))
                    })*
                }
            };
        }
        walked!(AdamW Adafactor Adam8bit Lion Sgd Muon)
    }
}

impl AnyOptimizer {
    /// The optimizer of a run. The rate rises over the first steps, then falls to a tenth by a cosine. Only matrices have weight decay.
    ///
    /// # Errors
    /// If weight decay is requested for an optimizer without it.
    pub(crate) fn of(config: &Config) -> anyhow::Result<AnyOptimizer> {
        let steps = u64::from(config.steps);
        let learning_rate = Schedule::WarmupCosine {
            start: 0.0,
            peak: config.learning_rate,
            end: config.learning_rate / 10.0,
            warmup_steps: (steps / 10).min(100),
            steps,
        };
        let (weight_decay, decay) = (config.weight_decay()?, Mask::Matrices);
        let adamw = AdamW {
            learning_rate: learning_rate.clone(),
            weight_decay,
            decay: decay.clone(),
            b2: 0.99,
            ..AdamW::default()
        };
        Ok(match config.optimizer {
            OptimizerName::Adamw => AnyOptimizer::AdamW(adamw),
            OptimizerName::Adafactor => AnyOptimizer::Adafactor(Adafactor { learning_rate, ..Adafactor::default() }),
            OptimizerName::Adam8bit => AnyOptimizer::Adam8bit(Adam8bit { adamw, ..Adam8bit::default() }),
            OptimizerName::Lion => AnyOptimizer::Lion(Lion { learning_rate, weight_decay, decay, ..Lion::default() }),
            OptimizerName::Sgd => AnyOptimizer::Sgd(Sgd { learning_rate, momentum: 0.9, nesterov: true }),
            OptimizerName::Muon => {
                // The tables of tokens and positions are matrices too, but not linear maps.
                let matrices = Mask::paths(["blocks.**.weight"]);
                AnyOptimizer::Muon(Muon { learning_rate, weight_decay, decay, matrices, adamw, ..Muon::default() })
            }
        })
    }
}

impl AnyOptimizer {
    /// The learning rate over the steps.
    pub(crate) fn learning_rate(&self) -> &Schedule {
        match self {
            AnyOptimizer::AdamW(optimizer) => &optimizer.learning_rate,
            AnyOptimizer::Adafactor(optimizer) => &optimizer.learning_rate,
            AnyOptimizer::Adam8bit(optimizer) => &optimizer.adamw.learning_rate,
            AnyOptimizer::Lion(optimizer) => &optimizer.learning_rate,
            AnyOptimizer::Sgd(optimizer) => &optimizer.learning_rate,
            AnyOptimizer::Muon(optimizer) => &optimizer.learning_rate,
        }
    }
}

impl Optimizer for AnyOptimizer {
    type State<M: Tree> = OptimizerState<M>;

    fn init<M: Tree>(&self, model: &M) -> OptimizerState<M> {
        match self {
            AnyOptimizer::AdamW(optimizer) => OptimizerState::AdamW(optimizer.init(model)),
            AnyOptimizer::Adafactor(optimizer) => OptimizerState::Adafactor(optimizer.init(model)),
            AnyOptimizer::Adam8bit(optimizer) => OptimizerState::Adam8bit(optimizer.init(model)),
            AnyOptimizer::Lion(optimizer) => OptimizerState::Lion(optimizer.init(model)),
            AnyOptimizer::Sgd(optimizer) => OptimizerState::Sgd(optimizer.init(model)),
            AnyOptimizer::Muon(optimizer) => OptimizerState::Muon(optimizer.init(model)),
        }
    }

    fn update<M: Tree>(&self, model: &M, gradients: &M, state: &OptimizerState<M>) -> Result<(M, OptimizerState<M>)> {
        macro_rules! updated {
            ($($variant:ident)*) => {
                match (self, state) {
                    $((AnyOptimizer::$variant(optimizer), OptimizerState::$variant(state)) => {
                        let (model, state) = optimizer.update(model, gradients, state)?;
                        Ok((model, OptimizerState::$variant(state)))
                    })*
                    _ => Err(Error::new(ErrorKind::Internal, "train", "the state is that of another optimizer")),
                }
            };
        }
        updated!(AdamW Adafactor Adam8bit Lion Sgd Muon)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Setting;

    #[test]
    fn a_decay_that_the_optimizer_lacks_is_refused() {
        let of = |settings: &[(&str, &str)]| {
            let settings: Vec<Setting> = settings.iter().map(|(key, value)| Setting::flag(key, value)).collect();
            AnyOptimizer::of(&Config::of(&settings).unwrap()).map_err(|error| error.to_string())
        };
        for name in ["adafactor", "sgd"] {
            assert!(of(&[("optimizer", name)]).is_ok());
            assert!(of(&[("optimizer", name), ("weight-decay", "0")]).is_ok());
            let refused = of(&[("optimizer", name), ("weight-decay", "0.1")]).err();
            assert_eq!(refused.as_deref(), Some("--weight-decay: the optimizers adafactor and sgd have none here"));
        }
        let decay = |settings: &[(&str, &str)]| match of(settings) {
            Ok(AnyOptimizer::AdamW(adamw)) => adamw.weight_decay,
            _ => panic!("not AdamW"),
        };
        assert_eq!((decay(&[]), decay(&[("weight-decay", "0.5")])), (0.1, 0.5));
    }
}
