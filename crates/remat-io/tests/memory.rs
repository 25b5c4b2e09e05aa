//! Saving holds no copy of what it writes, loading one of each tensor.

use remat::{DType, Tensor};
use remat_alloc::Counting;
use remat_io::{load, save};

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
}
