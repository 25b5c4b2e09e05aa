//! The README's code is the example `readme`: examples are compiled, run and read by Clippy.

const README: &str = include_str!("../../../README.md");
const EXAMPLE: &str = include_str!("../examples/readme.rs");

#[test]
fn the_code_of_the_readme_is_the_example() {
    let (_, code) = README.split_once("```rust\n").unwrap();
    let (code, _) = code.split_once("```").unwrap();
    let (_, example) = EXAMPLE.split_once("\n\n").unwrap();
    assert_eq!(code, example);
}
