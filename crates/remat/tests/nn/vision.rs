//! Models of images, beside transformers and diffusers.

use remat::nn::{ResNet, ResNetConfig, UNet, UNetConfig, Vit, VitConfig};
use remat::{DType, Policy, Tensor, checkpoint_layers, grad, jit, random, tree};

use super::vectors::{expect, expect_gradient, filled, input};

fn vit(dtype: DType) -> Vit {
    let config = VitConfig {
        image_size: 8,
        patch_size: 4,
        hidden_size: 8,
        num_hidden_layers: 2,
        num_attention_heads: 2,
        intermediate_size: 12,
        num_labels: 5,
        ..VitConfig::default()
    };
    Vit::init(random::key(0), &config, dtype)
}

fn resnet(bottleneck: bool, dtype: DType) -> ResNet {
    let hidden_sizes = if bottleneck { vec![8, 16] } else { vec![4, 8] };
    let depths = vec![1, 2];
    let config = ResNetConfig { embedding_size: 4, hidden_sizes, depths, bottleneck, num_labels: 5, num_channels: 3 };
    ResNet::init(random::key(0), &config, dtype)
}

fn unet() -> UNetConfig {
    UNetConfig {
        block_out_channels: vec![4, 8, 8],
        layers_per_block: 1,
        norm_num_groups: 2,
        attention_levels: vec![2],
        ..UNetConfig::default()
    }
}

#[test]
fn a_vision_transformer_is_that_of_transformers() {
    for (dtype, tolerance) in [(DType::F64, 1e-10), (DType::F32, 1e-5)] {
        let mut model = filled(&vit(dtype));
        let x = input(&[2, 3, 8, 8], dtype);
        expect("vit", &model.apply(&x), tolerance);
        expect_gradient("vit.gradient", |model: &Vit| Ok(model.apply(&x).square().mean(..)), &model, tolerance);
        model.blocks = model.blocks.stacked().unwrap().with_policy(Policy::Dots);
        expect("vit", &model.apply(&x), tolerance);
    }
    let message = |x: Tensor| x.error().unwrap().message().to_string();
    let large = Tensor::ones([2, 3, 12, 8], DType::F32);
    assert_eq!(message(vit(DType::F32).apply(&large)), "f32[2,3,12,8] has 6 patches, and the model 4");
    let config = VitConfig {
        image_size: 10,
        patch_size: 4,
        hidden_size: 4,
        num_attention_heads: 1,
        num_hidden_layers: 0,
        ..VitConfig::default()
    };
    let wrong = Vit::init(random::key(0), &config, DType::F32);
    assert_eq!(message(wrong.apply(&large)), "patches of 4 do not divide an image of 10");
}

#[test]
fn residual_networks_are_those_of_transformers() {
    for (name, bottleneck) in [("resnet.basic", false), ("resnet.bottleneck", true)] {
        for (dtype, tolerance) in [(DType::F64, 1e-10), (DType::F32, 1e-4)] {
            let model = filled(&resnet(bottleneck, dtype));
            let x = input(&[2, 3, 21, 18], dtype);
            let (logits, statistics) = model.train(&x, &model.statistics().unwrap()).unwrap();
            expect(&format!("{name}.train"), &logits, tolerance);
            expect(&format!("{name}.eval"), &model.eval(&x, &statistics).unwrap(), tolerance);
            let loss = |model: &ResNet| Ok(model.train(&x, &model.statistics()?)?.0.square().mean(..));
            expect_gradient(&format!("{name}.gradient"), loss, &model, tolerance);
        }
    }
    let model = resnet(false, DType::F32);
    let statistics = model.statistics().unwrap();
    assert_eq!(statistics.len(), 8);
    let x = input(&[2, 3, 21, 18], DType::F32);
    let wrong = model.eval(&x, &statistics[1..]).map(drop).unwrap_err();
    assert_eq!(wrong.message(), "7 statistics are given, and the model has more norms");
    let more = [&statistics[..], &statistics[..1]].concat();
    let wrong = model.train(&x, &more).map(drop).unwrap_err();
    assert_eq!(wrong.message(), "9 statistics are given, and the model has 8 norms");
}

#[test]
fn sizes_of_stages_that_do_not_fit_are_failed_weights() {
    let message = |hidden_sizes: &[usize], depths: &[usize], bottleneck| {
        let sizes = ResNetConfig { embedding_size: 4, num_labels: 5, ..ResNetConfig::resnet18() };
        let config = ResNetConfig { hidden_sizes: hidden_sizes.into(), depths: depths.into(), bottleneck, ..sizes };
        let model = ResNet::init(random::key(0), &config, DType::F32);
        for (path, leaf) in tree::leaves(&model) {
            assert!(leaf.error().is_some(), "{path}");
        }
        model.statistics().map(drop).unwrap_err().message().to_string()
    };
    let expected = "the hidden sizes [4, 8] and the depths [1] must be one of each per stage";
    assert_eq!(message(&[4, 8], &[1], false), expected);
    let expected = "the features of a bottleneck block must be a multiple of 4, not 6";
    assert_eq!(message(&[4, 6], &[1, 1], true), expected);
}

#[test]
fn the_sizes_of_the_paper_have_its_numbers_of_parameters() {
    let count = |config: &ResNetConfig| {
        let shapes =
            remat::eval_shape(|key: &Tensor| ResNet::init(random::Key::from_data(key.clone()), config, DType::F32));
        let model = shapes(random::key(0).data()).unwrap();
        tree::leaves(&model).iter().map(|(_, leaf)| leaf.size().unwrap()).sum::<usize>()
    };
    // Those of torchvision.
    assert_eq!(count(&ResNetConfig::resnet18()), 11_689_512);
    assert_eq!(count(&ResNetConfig::resnet50()), 25_557_032);
}

#[test]
fn unets_are_those_of_diffusers() {
    let config = UNetConfig { attention_levels: vec![1], ..unet() };
    for (name, has_time) in [("unet", false), ("unet.time", true)] {
        // diffusers computes the angles of a time in f32 in any case.
        for (dtype, tolerance) in [(DType::F64, if has_time { 1e-6 } else { 1e-10 }), (DType::F32, 1e-4)] {
            let config = UNetConfig { time: has_time, ..config.clone() };
            let model = filled(&UNet::init(random::key(0), &config, dtype));
            let (x, time) = (input(&[2, 3, 8, 12], dtype), has_time.then(|| Tensor::new([3, 70])));
            let apply = |model: &UNet| model.apply(&x, time.as_ref());
            expect(name, &apply(&model), tolerance);
            let loss = |model: &UNet| Ok(apply(model).square().mean(..));
            expect_gradient(&format!("{name}.gradient"), loss, &model, tolerance);
        }
    }
}

#[test]
fn a_unet_joins_its_levels() {
    for (config, time) in [(unet(), None), (UNetConfig { time: true, ..unet() }, Some(Tensor::new([3, 700])))] {
        let model = UNet::init(random::key(0), &config, DType::F32);
        let x = random::normal(random::key(1), [2, 3, 8, 12], DType::F32);
        let y = model.apply(&x, time.as_ref());
        assert_eq!(y.shape().unwrap(), [2, 3, 8, 12]);
        let loss = |model: &UNet| model.apply(&x, time.as_ref()).square().mean(..);
        let plain = jit(|model: &UNet| grad(loss)(model)).call(model.clone()).unwrap();
        // Every weight takes part.
        for (path, leaf) in tree::leaves(&plain) {
            let size = leaf.norm(..).item::<f32>().unwrap();
            assert!(size.is_finite() && size > 0.0 || path.to_string().ends_with("bias"), "{path}: {size}");
        }
        // The blocks under a policy give the same, up to the order in which the uses of a value on the way up and down are summed.
        let selected = checkpoint_layers("block", Policy::names(["conv"]), loss);
        let again = jit(|model: &UNet| grad(|model: &UNet| selected(model))(model)).call(model.clone()).unwrap();
        for ((path, a), (_, b)) in tree::leaves(&plain).iter().zip(tree::leaves(&again)) {
            assert!(a.allclose(&b, 1e-3, 1e-5).unwrap(), "{path}");
        }
        let message = |x: Tensor| x.error().unwrap().message().to_string();
        assert_eq!(
            message(model.apply(&Tensor::ones([1, 3, 8, 6], DType::F32), time.as_ref())),
            "takes images [batch, channels, height, width] that can be halved 2 times, not f32[1,3,8,6]"
        );
        let other = if time.is_some() { None } else { Some(Tensor::new([1, 2])) };
        let expected = match time {
            Some(_) => "the model was made with `time: true` and needs a time",
            None => "the model was made with `time: false` and takes no time",
        };
        assert_eq!(message(model.apply(&x, other.as_ref())), expected);
    }
    // The time makes a difference.
    let model = UNet::init(random::key(0), &UNetConfig { time: true, ..unet() }, DType::F32);
    let x = Tensor::ones([1, 3, 8, 8], DType::F32);
    let [early, late] = [1, 900].map(|t| model.apply(&x, Some(&Tensor::new([t]))));
    assert!(!early.allclose(&late, 1e-3, 1e-4).unwrap());
    let wrong = UNet::init(random::key(0), &UNetConfig { norm_num_groups: 3, ..unet() }, DType::F32);
    assert_eq!(wrong.apply(&x, None).error().unwrap().message(), "3 groups do not divide 4 features");
    let wrong = UNet::init(random::key(0), &UNetConfig { attention_levels: vec![1, 9], ..unet() }, DType::F32);
    assert_eq!(wrong.apply(&x, None).error().unwrap().message(), "attention level 9 is not one of the 3 levels");
}
