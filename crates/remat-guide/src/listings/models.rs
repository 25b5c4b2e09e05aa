//! Layers, losses and initializers.

use remat::nn::{
    Embedding, Initializer, LayerNorm, Linear, cross_entropy, dropout, kl_divergence, mean_squared_error,
    smoothed_cross_entropy,
};
use remat::random::{self, Key};
use remat::report::saved_residuals;
use remat::{DType, Result, Tensor, Tree, grad, tree};

// ANCHOR: model
/// Three classes from a category and four numbers.
#[derive(Clone, Tree)]
struct Net {
    category: Embedding,
    hidden: Linear,
    norm: LayerNorm,
    out: Linear,
}

impl Net {
    fn init(key: Key) -> Net {
        let [category, hidden, out] = key.split();
        Net {
            category: Embedding::new(category, 10, 4),
            hidden: Linear::new(hidden, 8, 32).without_bias(),
            norm: LayerNorm::new(32),
            out: Linear::new(out, 32, 3),
        }
    }

    /// The logits. Dropout takes place if there is a key for it.
    fn apply(&self, category: &Tensor, numbers: &Tensor, mask: Option<Key>) -> Tensor {
        let x = Tensor::concatenate(&[&self.category.apply(category), numbers], -1);
        let x = self.norm.apply(&self.hidden.apply(&x)).gelu();
        self.out.apply(&mask.map_or(x.clone(), |key| dropout(key, &x, 0.1)))
    }
}
// ANCHOR_END: model

pub(crate) fn main() -> Result<()> {
    println!("== apply");
    // ANCHOR: apply
    let net = Net::init(random::key(0));
    let (category, numbers) = (Tensor::new([3, 7]), Tensor::ones([2, 4], DType::F32));
    let classes = Tensor::new([0, 2]);
    let loss = |net: &Net| cross_entropy(&net.apply(&category, &numbers, Some(random::key(1))), &classes);

    // The gradient has the type of the model, so each weight's is where the weight is.
    for (path, gradient) in tree::leaves(&grad(loss)(&net)?) {
        println!("{path}: {}", gradient.aval()?);
    }
    // ANCHOR_END: apply

    println!("== losses");
    // ANCHOR: losses
    let logits = random::normal(random::key(2), [64, 1000], DType::F32);
    let (classes, targets) = (Tensor::arange(0..64), logits.softmax(-1));
    let losses: [(&str, &dyn Fn(&Tensor) -> Tensor); 4] = [
        ("cross_entropy", &|x| cross_entropy(x, &classes)),
        ("smoothed_cross_entropy", &|x| smoothed_cross_entropy(x, &classes, 0.1)),
        ("kl_divergence", &|x| kl_divergence(&x.log_softmax(-1), &targets)),
        ("mean_squared_error", &|x| mean_squared_error(x, &targets)),
    ];
    for (name, loss) in losses {
        println!("{name:<22} {:>7} bytes", saved_residuals(loss, &logits)?.intermediate_bytes());
    }
    // ANCHOR_END: losses

    println!("== initializers");
    // ANCHOR: initializers
    let hidden = Linear {
        weight: Initializer::HeNormal.linear(random::key(3), 256, 256, DType::F32),
        ..Linear::new(random::key(4), 256, 256)
    };
    let orthogonal = Initializer::Orthogonal.linear(random::key(5), 256, 256, DType::F32);
    println!("standard deviation {:.4}", hidden.weight.std(..).item::<f32>()?);
    assert!(orthogonal.matmul(&orthogonal.t()).allclose(&Tensor::eye(256, DType::F32), 0.0, 1e-5)?);
    // ANCHOR_END: initializers
    Ok(())
}
