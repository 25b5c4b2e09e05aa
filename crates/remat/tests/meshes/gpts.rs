//! GPTs on meshes: data parallel, tensor parallel, and with all parameters cut, under each policy, beside the step on one device.

use remat::nn::{AttentionConfig, cross_entropy, dot_product_attention};
use remat::optim::{AdamW, Moments, Optimizer};
use remat::random::{self, Key};
use remat::tree::leaves;
use remat::{
    DType, Device, JitOptions, Mesh, Policy, Result, Specs, Tensor, Tree, checkpoint, jit_with, shard_map, spec,
    value_and_grad,
};
use remat_testkit::installed;

const VOCABULARY: usize = 16;
const FEATURES: usize = 16;
const HEAD: usize = 4;
const POSITIONS: usize = 8;
const BATCH: usize = 8;

#[derive(Clone, Tree)]
struct Layer {
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    up: Tensor,
    down: Tensor,
}

#[derive(Clone, Tree)]
struct Gpt {
    embedding: Tensor,
    layers: Vec<Layer>,
    head: Tensor,
}

/// How a model is spread over a mesh.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Spread {
    /// One device.
    None,
    /// The batch is cut, parameters are copied.
    Data,
    /// Heads and hidden features are cut, too.
    Tensor,
    /// The batch is cut, and so is every parameter, which is gathered where it is used.
    Full,
}

impl Spread {
    /// How a parameter is cut.
    fn specs(self) -> Specs {
        Specs::by(move |path, aval| match (self, path.to_string().rsplit('.').next()) {
            (Spread::Tensor, Some("q" | "k" | "v" | "up")) => spec![None, "model"],
            (Spread::Tensor, Some("out" | "down")) => spec!["model"],
            (Spread::Full, _) if aval.rank() > 0 => spec!["data"],
            _ => spec![],
        })
    }

    /// The parameter where it is used.
    fn whole(self, weight: &Tensor) -> Tensor {
        if self == Spread::Full { weight.all_gather("data", 0).named("gathered") } else { weight.clone() }
    }

    /// The sum of the parts of a product whose summed axis is cut.
    fn sum(self, x: Tensor) -> Tensor {
        if self == Spread::Tensor { x.psum("model").named("summed") } else { x }
    }
}

impl Gpt {
    fn init(key: Key) -> Gpt {
        let normal = |key, shape: [usize; 2]| random::normal(key, shape, DType::F32) * 0.2;
        let [embedding, layers, head] = key.split();
        let layer = |key: Key| {
            let [q, k, v, out, up, down] = key.split();
            Layer {
                q: normal(q, [FEATURES, FEATURES]),
                k: normal(k, [FEATURES, FEATURES]),
                v: normal(v, [FEATURES, FEATURES]),
                out: normal(out, [FEATURES, FEATURES]),
                up: normal(up, [FEATURES, 4 * FEATURES]),
                down: normal(down, [4 * FEATURES, FEATURES]),
            }
        };
        Gpt {
            embedding: normal(embedding, [VOCABULARY, FEATURES]),
            layers: layers.split_vec(2).into_iter().map(layer).collect(),
            head: normal(head, [FEATURES, VOCABULARY]),
        }
    }

    /// The mean loss of these sequences.
    fn loss(&self, tokens: &Tensor, targets: &Tensor, policy: Option<&Policy>, spread: Spread) -> Tensor {
        let mut x = spread.whole(&self.embedding).take(tokens, 0);
        for layer in &self.layers {
            x = match policy {
                Some(policy) => checkpoint(policy.clone(), |x: &Tensor| layer.apply(x, spread))(&x),
                None => layer.apply(&x, spread),
            };
        }
        cross_entropy(&x.matmul(&spread.whole(&self.head)), targets)
    }
}

fn normalised(x: &Tensor) -> Tensor {
    x / (x.square().mean(remat::argument::keep(-1)) + 1e-5).sqrt()
}

impl Layer {
    fn apply(&self, x: &Tensor, spread: Spread) -> Tensor {
        let n = normalised(x);
        let heads = |w: &Tensor| {
            let y = n.matmul(&spread.whole(w));
            let shape = y.shape().map(|shape| [shape[0], shape[1], shape[2] / HEAD, HEAD]).unwrap_or_default();
            y.reshape(shape)
        };
        let config = AttentionConfig { causal: true, ..AttentionConfig::default() };
        let mixed = dot_product_attention(&heads(&self.q), &heads(&self.k), &heads(&self.v), &config);
        let [batch, positions] = [0, 1].map(|axis| mixed.dim(axis).unwrap_or_default());
        let mixed = mixed.reshape([batch, positions, mixed.size().unwrap_or_default() / (batch * positions)]);
        let x = x + spread.sum(mixed.matmul(&spread.whole(&self.out)).named("attn"));
        let hidden = normalised(&x).matmul(&spread.whole(&self.up)).gelu();
        &x + spread.sum(hidden.matmul(&spread.whole(&self.down)))
    }
}

/// The native engine, which computes all shards, and virtual devices of XLA where the plugin is installed.
fn devices() -> Vec<(Device, Mesh)> {
    let mesh = |data| Mesh::new([("data", data), ("model", 2)]).unwrap();
    let mut all = vec![(Device::cpu(), mesh(2))];
    for data in [2, 4] {
        let devices = installed("meshes on several devices", Device::xla_cpus(2 * data));
        all.extend(devices.map(|devices| (devices, mesh(data))));
    }
    all
}

fn policies() -> Vec<Option<Policy>> {
    let names = [Policy::names(["attn"]), Policy::names(["summed"]), Policy::names(["gathered"])];
    let some = [Policy::Nothing, Policy::Everything, Policy::Dots, Policy::DotsWithNoBatchDims];
    std::iter::once(None).chain(some.into_iter().chain(names).map(Some)).collect()
}

fn data() -> (Tensor, Tensor) {
    let [tokens, targets] =
        random::key(7).split().map(|key| random::randint(key, [BATCH, POSITIONS], DType::I32, 0..VOCABULARY as i64));
    (tokens, targets)
}

fn assert_close<T: Tree>(got: &T, expected: &T, what: &str) -> Result<()> {
    for ((path, got), (_, expected)) in leaves(got).into_iter().zip(leaves(expected)) {
        let (got, expected) = (got.to_vec::<f32>()?, expected.to_vec::<f32>()?);
        let largest = expected.iter().fold(1.0f32, |most, x| most.max(x.abs()));
        for (got, expected) in got.iter().zip(&expected) {
            assert!((got - expected).abs() <= 1e-5 * largest, "{what}: {path}: {got} and not {expected}");
        }
    }
    Ok(())
}

/// Losses and gradients, differentiated outside of the `shard_map`.
#[test]
fn losses_and_gradients_are_those_of_one_device_under_each_policy() -> Result<()> {
    let model = Gpt::init(random::key(3));
    let (tokens, targets) = data();
    let expected = value_and_grad(|model: &Gpt| model.loss(&tokens, &targets, None, Spread::None))(&model)?;
    for (device, mesh) in devices() {
        for spread in [Spread::Data, Spread::Tensor, Spread::Full] {
            for policy in policies() {
                let names = match &policy {
                    Some(Policy::Names(names)) => names.iter().map(|name| name.to_string()).collect(),
                    _ => Vec::new(),
                };
                let has = |name: &str, of| !names.iter().any(|n| n == name) || spread == of;
                // On more devices two policies, since compiling takes seconds.
                let is_skipped = mesh.devices() > 4 && !matches!(policy, None | Some(Policy::Nothing));
                if is_skipped || !has("summed", Spread::Tensor) || !has("gathered", Spread::Full) {
                    continue;
                }
                let loss = shard_map(
                    &mesh,
                    (spread.specs(), spec!["data"], spec!["data"]),
                    spec![],
                    |(model, tokens, targets): &(Gpt, Tensor, Tensor)| {
                        model.loss(tokens, targets, policy.as_ref(), spread).pmean("data")
                    },
                );
                let options = JitOptions { device: Some(device.clone()), ..JitOptions::default() };
                let step = jit_with(&options, |(model, tokens, targets): &(Gpt, Tensor, Tensor)| {
                    value_and_grad(|model: &Gpt| loss(&(model.clone(), tokens.clone(), targets.clone())))(model)
                });
                let got = step.call((model.clone(), tokens.clone(), targets.clone()))?;
                assert_close(&got, &expected, &format!("{spread:?} on {} with {policy:?}", device.name()))?;
            }
        }
    }
    Ok(())
}

/// Parameters and the state of the optimizer stay cut: each device updates its own part.
#[test]
fn fully_sharded_training_is_that_of_one_device() -> Result<()> {
    let adam = AdamW::default();
    let (tokens, targets) = data();
    let mut expected = (Gpt::init(random::key(3)), adam.init(&Gpt::init(random::key(3))));
    let mut losses = Vec::new();
    for _ in 0..3 {
        let loss = |model: &Gpt| model.loss(&tokens, &targets, None, Spread::None);
        let (loss, gradient) = value_and_grad(loss)(&expected.0)?;
        expected = adam.update(&expected.0, &gradient, &expected.1)?;
        losses.push(loss);
    }
    for (device, mesh) in devices() {
        let specs = || Spread::Full.specs();
        let shards = mesh.size("data").unwrap() as f64;
        let step = shard_map(
            &mesh,
            (specs(), specs(), spec!["data"], spec!["data"]),
            (specs(), specs(), spec![]),
            |(model, state, tokens, targets): &(Gpt, Moments<Gpt>, Tensor, Tensor)| -> Result<(Gpt, Moments<Gpt>, Tensor)> {
                // The gradient is that of the sum over all shards.
                let loss = |model: &Gpt| model.loss(tokens, targets, Some(&Policy::Nothing), Spread::Full) / shards;
                let (loss, gradient) = value_and_grad(loss)(model)?;
                let (model, state) = adam.update(model, &gradient, state)?;
                Ok((model, state, loss.psum("data")))
            },
        );
        let options = JitOptions { device: Some(device.clone()), ..JitOptions::default() };
        let step = jit_with(&options, step);
        let (mut model, mut state) = (Gpt::init(random::key(3)), adam.init(&Gpt::init(random::key(3))));
        for expected in &losses {
            let loss;
            (model, state, loss) = step.call((model, state, tokens.clone(), targets.clone()))?;
            assert_close(&loss, expected, device.name())?;
        }
        assert_close(&model, &expected.0, device.name())?;
    }
    Ok(())
}
