//! Many devices.

use remat::{DType, Mesh, Result, Tensor, pmean, shard_map, spec, value_and_grad};

pub(crate) fn main() -> Result<()> {
    println!("== shards");
    // ANCHOR: shards
    let mesh = Mesh::new([("data", 4)])?;
    // Parameters are copied, the batch is cut, and the gradients are averaged.
    let step = shard_map(&mesh, (spec![], spec!["data"]), spec![], |(w, x): &(Tensor, Tensor)| {
        let loss = |w: &Tensor| x.matmul(w).square().mean(..);
        Ok::<_, remat::Error>(pmean(&value_and_grad(loss)(w)?, "data"))
    });
    let (loss, gradient) = step(&(Tensor::ones([3], DType::F32), Tensor::ones([8, 3], DType::F32)))?;
    println!("{loss} {gradient}");
    // ANCHOR_END: shards
    Ok(())
}
