//! The listing of docs/DESIGN.md is what the passes make of its program.

use std::fs;
use std::path::Path;

use remat::{DType, Policy, Tensor, checkpoint, grad, jit};

/// The parts of a listing, each of which begins with a line `== ...`.
fn parts(listing: &str) -> Vec<&str> {
    listing.split("== ").map(str::trim).filter(|part| !part.is_empty()).collect()
}

#[test]
fn passes_print_the_listing_of_the_design() -> remat::Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/DESIGN.md");
    let design = fs::read_to_string(path).expect("docs/DESIGN.md is there");
    let (_, section) = design.split_once("### What the passes make of a block").expect("the section is there");
    let (_, listing) = section.split_once("```text").expect("the section has a listing");
    let (listing, _) = listing.split_once("```").expect("the listing ends");

    let layer = checkpoint(Policy::Nothing, |(x, w): &(Tensor, Tensor)| x.matmul(w).named("hidden").tanh());
    let loss = move |x: &Tensor, w: &Tensor| layer(&(x.clone(), w.clone())).sum(..);
    let gradient = jit(move |(x, w): &(Tensor, Tensor)| grad(|w: &Tensor| loss(x, w))(w));
    let printed = gradient.passes(&(Tensor::zeros([4, 8], DType::F32), Tensor::zeros([8, 8], DType::F32)))?.to_string();

    let printed = parts(&printed);
    let missing: Vec<&str> = parts(listing).into_iter().filter(|part| !printed.contains(part)).collect();
    assert!(
        missing.is_empty(),
        "no pass prints this part:\n{}\nthey print:\n{}",
        missing.join("\n"),
        printed.join("\n")
    );
    assert!(parts(listing).len() > 3, "the listing is read");
    Ok(())
}
