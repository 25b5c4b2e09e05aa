//! Trees that are cut over several devices: four virtual ones of XLA for CPUs.

use remat::tree::leaves;
use remat::{DType, Device, JitOptions, Mesh, Result, Shardings, Specs, Tensor, Tree, jit_with, spec, tree};
use remat_io::{Checkpoint, Checkpoints, Progress, Snapshot, load, save};
use remat_testkit::installed;

#[derive(Clone, Tree)]
struct Model {
    weight: Tensor,
    half: Tensor,
    bias: Tensor,
    scale: Tensor,
}

fn model() -> Model {
    let counted = |count: i32| Tensor::arange(0..count).to_dtype(DType::F32);
    Model {
        weight: counted(32).reshape([8, 4]) * 0.1,
        half: (counted(16).reshape([4, 4]) * 0.3).to_dtype(DType::Bf16),
        bias: counted(4) - 1.5,
        scale: Tensor::from(2.0f32),
    }
}

/// Two ways over four devices.
fn shardings() -> [Shardings; 2] {
    let by = |path: &str, rows: [&str; 2]| match path {
        "weight" => spec![rows[0], rows[1]],
        "half" => spec![None, rows[1]],
        "bias" => spec![rows[1]],
        _ => spec![],
    };
    let rows = Shardings::new(
        &Mesh::new([("data", 4), ("none", 1)]).unwrap(),
        Specs::by(move |path, _| by(&path.to_string(), ["data", "none"])),
    );
    let both = Shardings::new(
        &Mesh::new([("a", 2), ("b", 2)]).unwrap(),
        Specs::by(move |path, _| by(&path.to_string(), ["a", "b"])),
    );
    [rows, both]
}

/// A step of a model that is cut: what it gives stays so.
fn step(devices: &Device, shardings: &Shardings, model: &Model) -> Result<Model> {
    let options = JitOptions {
        device: Some(devices.clone()),
        in_shardings: Some(shardings.clone()),
        out_shardings: Some(shardings.clone()),
        ..JitOptions::default()
    };
    jit_with(&options, |model: &Model| tree::map(model, |leaf| leaf * 1.5)).call(model.clone())
}

/// Four devices; `None` where the plugin is not installed and need not be.
fn devices() -> Option<Device> {
    installed("sharded tensors", Device::xla_cpus(4))
}

fn values(model: &Model) -> Vec<Vec<f32>> {
    leaves(model).into_iter().map(|(_, leaf)| leaf.to_dtype(DType::F32).to_vec().unwrap()).collect()
}

fn cuts(model: &Model) -> Vec<String> {
    leaves(model).into_iter().map(|(_, leaf)| format!("{:?}", leaf.sharding().unwrap())).collect()
}

#[test]
fn a_tree_that_is_cut_is_saved_whole_and_loaded_cut() {
    let Some(devices) = devices() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let [rows, both] = shardings();
    let state = step(&devices, &rows, &model()).unwrap();
    assert!(cuts(&state)[0].contains("data"), "{:?}", cuts(&state));
    save(path("cut"), &state).unwrap();
    // The file is that of the same tree on the host.
    save(path("host"), &tree::map(&state, |leaf| leaf.to_device(&Device::cpu()))).unwrap();
    assert_eq!(std::fs::read(path("cut")).unwrap(), std::fs::read(path("host")).unwrap());
    let other = step(&devices, &both, &model()).unwrap();
    assert_ne!(cuts(&state), cuts(&other));
    // The cut is that of the tree that it is loaded into, whatever it was.
    for (like, shardings) in [(&state, &rows), (&other, &both)] {
        let loaded = load(path("cut"), like).unwrap();
        assert_eq!((values(&loaded), cuts(&loaded)), (values(&state), cuts(like)));
        assert_eq!(loaded.weight.device().unwrap().name(), "xla-cpu:0-3");
        let next = step(&devices, shardings, &loaded).unwrap();
        assert_eq!(values(&next), values(&step(&devices, &rows, &state).unwrap()));
    }
    // A tree of the host into one that is cut, and one that is cut into one of the host.
    save(path("model"), &model()).unwrap();
    let loaded = load(path("model"), &state).unwrap();
    assert_eq!((values(&loaded), cuts(&loaded)), (values(&model()), cuts(&state)));
    let loaded = load(path("cut"), &model()).unwrap();
    assert_eq!((values(&loaded), loaded.weight.device().unwrap().name()), (values(&state), "cpu"));
    // One of which each device has the whole stays so.
    let whole = tree::map(&model(), |leaf| leaf.to_device(&devices));
    let loaded = load(path("cut"), &whole).unwrap();
    assert_eq!((values(&loaded), cuts(&loaded)), (values(&state), cuts(&whole)));
}

#[test]
fn a_checkpoint_of_a_tree_that_is_cut() {
    let Some(devices) = devices() else { return };
    let folder = tempfile::tempdir().unwrap();
    let [rows, both] = shardings();
    let mut state = step(&devices, &rows, &model()).unwrap();
    let mut checkpoints = Checkpoints::open(folder.path()).unwrap();
    for number in 1..=3 {
        let progress = Progress { step: number, seed: 0, data: (), config: () };
        checkpoints.save(Snapshot::new(&progress).unwrap().with("model", &state).unwrap()).unwrap();
        // The snapshot has its own copy: the state is given up to the next step.
        state = step(&devices, &rows, &state).unwrap();
    }
    checkpoints.finish().unwrap();
    let checkpoint = Checkpoint::latest(folder.path()).unwrap().checkpoint.unwrap();
    for shardings in [rows, both] {
        let like = step(&devices, &shardings, &model()).unwrap();
        let loaded = checkpoint.tree("model", &like).unwrap();
        assert_eq!(cuts(&loaded), cuts(&like));
        assert_eq!(values(&step(&devices, &shardings, &loaded).unwrap()), values(&state));
    }
}
