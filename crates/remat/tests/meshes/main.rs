//! Many devices: `shard_map`, collectives and parts of meshes.

mod gpts;
mod partial_meshes;
mod shard_map;
