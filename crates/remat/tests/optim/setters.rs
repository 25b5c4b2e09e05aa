//! Constructors and setters of optimizers set the fields that they name, and no others.

use remat::optim::{
    Accumulate, Adafactor, Adam8bit, AdamW, Ema, Frozen, Lion, LossScale, Mask, Muon, Partition, Schedule, Sgd,
};
use remat::{DType, Tensor};

fn rate(schedule: &Schedule) -> f64 {
    schedule.at(&Tensor::from(0), DType::F64).item::<f64>().unwrap()
}

#[test]
fn fields_are_set() {
    let adam = AdamW::new(3e-4).b1(0.8).b2(0.95).eps(1e-6).weight_decay(0.1).decay(Mask::Matrices);
    assert_eq!(rate(&adam.learning_rate), 3e-4);
    assert_eq!([adam.b1, adam.b2, adam.eps, adam.weight_decay], [0.8, 0.95, 1e-6, 0.1]);
    assert!(matches!(adam.decay, Mask::Matrices));

    let sgd = Sgd::new(0.5).momentum(0.9).nesterov(true);
    assert_eq!((rate(&sgd.learning_rate), sgd.momentum, sgd.nesterov), (0.5, 0.9, true));

    let lion = Lion::new(1e-3).b1(0.95).b2(0.98).weight_decay(0.0).decay(Mask::Matrices);
    assert_eq!((rate(&lion.learning_rate), lion.b1, lion.b2, lion.weight_decay), (1e-3, 0.95, 0.98, 0.0));
    assert!(matches!(lion.decay, Mask::Matrices));

    let small = Adam8bit::new(0.1).b1(0.8).b2(0.95).eps(1e-6).weight_decay(0.2).block(64).min_size(1);
    let adam = &small.adamw;
    assert_eq!((rate(&adam.learning_rate), small.block, small.min_size), (0.1, 64, 1));
    assert_eq!([adam.b1, adam.b2, adam.eps, adam.weight_decay], [0.8, 0.95, 1e-6, 0.2]);
    assert!(matches!(Adam8bit::new(0.1).decay(Mask::Matrices).adamw.decay, Mask::Matrices));

    let ada = Adafactor::new(0.1).min_factored(8).decay_rate(0.7).scale_by_parameter(false).clip(None).momentum(0.9);
    assert_eq!((rate(&ada.learning_rate), ada.min_factored, ada.decay_rate), (0.1, 8, 0.7));
    assert_eq!((ada.scale_by_parameter, ada.clip, ada.momentum), (false, None, Some(0.9)));
    let ada = Adafactor::new(0.1).eps(1e-8).weight_decay(0.1).decay(Mask::Matrices);
    assert_eq!((ada.eps, ada.weight_decay, ada.clip), (1e-8, 0.1, Some(1.0)));
    assert!(matches!(ada.decay, Mask::Matrices));

    let muon = Muon::new(0.1).beta(0.9).nesterov(false).coefficients([1.0; 3]).iterations(3).eps(1e-6).rms(0.2);
    assert_eq!((rate(&muon.learning_rate), muon.beta, muon.nesterov), (0.1, 0.9, false));
    assert_eq!((muon.coefficients, muon.iterations, muon.eps, muon.rms), ([1.0; 3], 3, 1e-6, Some(0.2)));
    let muon = Muon::new(0.1).weight_decay(0.1).decay(Mask::Matrices).matrices(Mask::All).adamw(AdamW::new(0.5));
    assert_eq!((muon.weight_decay, rate(&muon.adamw.learning_rate)), (0.1, 0.5));
    assert!(matches!((muon.decay, muon.matrices), (Mask::Matrices, Mask::All)));

    let ema = Ema::new(0.9).debias(false);
    assert_eq!((ema.decay, ema.debias), (0.9, false));
    let scale = LossScale::new(8.0).growth_interval(3).growth(4.0).backoff(0.25);
    assert_eq!((scale.growth_interval, scale.growth, scale.backoff), (3, 4.0, 0.25));
    let four = Accumulate::new(AdamW::new(0.25), 4);
    assert_eq!((four.steps, rate(&four.optimizer.learning_rate)), (4, 0.25));
    let head = Partition::new(Mask::Matrices, AdamW::new(0.25), Frozen);
    assert!(matches!((head.mask, rate(&head.chosen.learning_rate)), (Mask::Matrices, 0.25)));
}

#[test]
fn what_is_not_set_is_the_default() {
    let (adam, default) = (AdamW::new(0.5), AdamW::default());
    assert_eq!(format!("{:?}", AdamW { learning_rate: default.learning_rate.clone(), ..adam }), format!("{default:?}"));
    let warmup = Schedule::Linear { start: 0.25, end: 1.0, steps: 8 };
    assert_eq!(rate(&Sgd::new(warmup).learning_rate), 0.25);
    assert_eq!(rate(&Sgd::new(Tensor::from(0.125f32)).learning_rate), 0.125);
}
