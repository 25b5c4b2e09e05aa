//! The order of the layers that the documentation of the crate lists.

use remat_testkit::layers;

#[test]
fn layers_use_only_those_above() {
    let src = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
    assert_eq!(layers::faults(src).unwrap(), Vec::<String>::new());
}
