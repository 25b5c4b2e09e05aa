//! `#[derive(Tree)]` for `remat`.

mod tree;

/// Derives `remat::Tree` for a struct or an enum.
///
/// Every field must be a `Tree`. Leaves are visited in the order of the fields, and a field's name (a tuple field's index) is its step in
/// the path. The variant of an enum is static structure. A type parameter that a field uses gets the bound `Tree`.
///
/// `#[tree(static)]` marks a field that is not a tree. It is cloned, and its value is part of the structure, so it must be `Clone` and
/// `Hash`.
#[proc_macro_derive(Tree, attributes(tree))]
pub fn derive_tree(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    tree::derive(&input).unwrap_or_else(|error| error.to_compile_error()).into()
}
