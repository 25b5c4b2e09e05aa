//! Saving holds no copy of what it writes, loading one of each tensor; a snapshot that is being written costs the next step its donations.

use remat::{DType, Tensor, jit};
use remat_alloc::Counting;
use remat_io::{Checkpoints, Progress, Snapshot, load, save};

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

#[test]
fn bytes_beside_the_tensors() {
    const SMALL: usize = 512 << 10;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.safetensors");
    let tree: Vec<Tensor> = (0..4).map(|i| Tensor::full([1 << 20], i, DType::F32)).collect();
    let before = ALLOCATOR.live();
    ALLOCATOR.reset_peak();
    save(&path, &tree).unwrap();
    assert!(ALLOCATOR.peak() - before < SMALL, "{}", ALLOCATOR.peak() - before);
    let like = vec![Tensor::shape_only([1 << 20], DType::F32); 4];
    ALLOCATOR.reset_peak();
    let loaded = load(&path, &like).unwrap();
    let peak = ALLOCATOR.peak() - before;
    assert!(peak < (16 << 20) + SMALL, "{peak}");
    assert_eq!(loaded[3].to_vec::<f32>().unwrap()[7], 3.0);
    drop((tree, loaded));

    let step = jit(|model: &Vec<Tensor>| model.iter().map(|x| x + 1.0).collect::<Vec<Tensor>>());
    let mut model = step.call(vec![Tensor::zeros([1 << 20], DType::F32); 4]).unwrap();
    let mut checkpoints = Checkpoints::open(folder.path().join("run")).unwrap();
    let bytes = 16 << 20;
    for (saves, expected) in [(false, bytes), (true, 2 * bytes), (false, bytes)] {
        ALLOCATOR.reset_peak();
        for i in 0..3 {
            if saves {
                let progress = Progress { step: i, seed: 0, data: (), config: () };
                checkpoints.save(Snapshot::new(&progress).unwrap().with("model", &model).unwrap()).unwrap();
            }
            model = step.call(model).unwrap();
        }
        let peak = ALLOCATOR.peak() - before;
        assert!(peak < expected + 2 * SMALL, "saves: {saves}, {peak} bytes");
        if saves {
            // What is being written is no longer held after that.
            checkpoints = {
                checkpoints.finish().unwrap();
                Checkpoints::open(folder.path().join("run")).unwrap()
            };
        }
    }
}
