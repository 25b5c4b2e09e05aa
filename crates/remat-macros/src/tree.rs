//! Generates the code of `#[derive(Tree)]`.

use proc_macro2::{TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote};
use syn::ext::IdentExt;
use syn::{Attribute, Data, DeriveInput, Error, Field, Fields, Generics, Ident, Index, Member, Result};

/// The implementation of `Tree` for a struct or an enum.
///
/// # Errors
/// For a union, and for an attribute `tree` that has no meaning in its position.
pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    no_attributes(&input.attrs, "a type")?;
    let (body, kinds) = match &input.data {
        Data::Struct(data) => {
            let fields = read_fields(&data.fields)?;
            let (pattern, value) = pattern_and_value(&fields, quote!(Self));
            (quote!({ let #pattern = self; #value }), fields)
        }
        Data::Enum(data) => {
            let mut arms = Vec::new();
            let mut all = Vec::new();
            for variant in &data.variants {
                no_attributes(&variant.attrs, "a variant")?;
                let fields = read_fields(&variant.fields)?;
                let ident = &variant.ident;
                let name = ident.unraw().to_string();
                let (pattern, value) = pattern_and_value(&fields, quote!(Self::#ident));
                arms.push(quote!(#pattern => { ::remat::tree::Walk::variant(__walk, #name); #value }));
                all.extend(fields);
            }
            // Matches on the place `*self`, since a reference to an enum without variants counts as inhabited.
            let body = if arms.is_empty() { quote!(match *self {}) } else { quote!(match self { #(#arms)* }) };
            (body, all)
        }
        Data::Union(data) => {
            let message = "a union cannot be a tree: which of its fields is in use is not known; use an enum";
            return Err(Error::new(data.union_token.span, message));
        }
    };
    let ident = &input.ident;
    let generics = bounded(&input.generics, &kinds);
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics ::remat::Tree for #ident #type_generics #where_clause {
            #[allow(unused_variables)]
            fn map_leaves(&self, __walk: &mut ::remat::tree::Walk<'_>) -> Self {
                #body
            }
        }
    })
}

/// A field, and whether it is marked as static.
struct Part<'a> {
    field: &'a Field,
    member: Member,
    is_static: bool,
}

fn read_fields(fields: &Fields) -> Result<Vec<Part<'_>>> {
    fields
        .iter()
        .enumerate()
        .map(|(i, field)| {
            let member = match &field.ident {
                Some(ident) => Member::Named(ident.clone()),
                None => Member::Unnamed(Index::from(i)),
            };
            Ok(Part { field, member, is_static: read_attributes(&field.attrs)? })
        })
        .collect()
}

/// A pattern that destructures `path` into its fields, and the value of a visit of them. Struct syntax also serves tuple and unit structs
/// (`Self { 0: x }`, `Self {}`).
fn pattern_and_value(parts: &[Part<'_>], path: TokenStream) -> (TokenStream, TokenStream) {
    let members: Vec<&Member> = parts.iter().map(|part| &part.member).collect();
    let bindings: Vec<Ident> = (0..parts.len()).map(|i| format_ident!("__field{i}")).collect();
    let values = parts.iter().zip(&bindings).map(|(part, binding)| {
        let ty = &part.field.ty;
        let (segment, step, name) = match &part.member {
            Member::Named(ident) => (quote!(Field), quote!(field), ident.unraw().to_string().to_token_stream()),
            Member::Unnamed(Index { index, .. }) => (quote!(Index), quote!(index), (*index as usize).to_token_stream()),
        };
        if part.is_static {
            quote!({
                ::remat::tree::Walk::static_at::<#ty>(__walk, ::remat::tree::Segment::#segment(#name), #binding);
                <#ty as ::core::clone::Clone>::clone(#binding)
            })
        } else {
            quote!(::remat::tree::Walk::#step::<#ty>(__walk, #name, #binding))
        }
    });
    (quote!(#path { #(#members: #bindings),* }), quote!(#path { #(#members: #values),* }))
}

/// The generics with the bounds that the fields need: `Tree` for a type parameter in a tree, `Clone` and `Hash` for one in a static field.
/// A `PhantomData` is a tree whatever its parameter.
fn bounded(generics: &Generics, parts: &[Part<'_>]) -> Generics {
    let mut generics = generics.clone();
    for param in generics.type_params_mut() {
        // Trees are `'static`, so that their parts can be distinguished by type.
        param.bounds.push(syn::parse_quote!('static));
        let uses = |part: &Part<'_>| mentions(part.field.ty.to_token_stream(), &param.ident);
        if parts.iter().any(|part| !part.is_static && !is_marker(part.field) && uses(part)) {
            param.bounds.push(syn::parse_quote!(::remat::Tree));
        }
        if parts.iter().any(|part| part.is_static && uses(part)) {
            param.bounds.push(syn::parse_quote!(::core::clone::Clone));
            param.bounds.push(syn::parse_quote!(::core::hash::Hash));
        }
    }
    generics
}

fn mentions(tokens: TokenStream, name: &Ident) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == *name,
        TokenTree::Group(group) => mentions(group.stream(), name),
        TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    })
}

fn is_marker(field: &Field) -> bool {
    let syn::Type::Path(path) = &field.ty else { return false };
    path.path.segments.last().is_some_and(|segment| segment.ident == "PhantomData")
}

/// Whether the attributes of a field mark it as static.
fn read_attributes(attrs: &[Attribute]) -> Result<bool> {
    let mut is_static = false;
    for attr in attrs.iter().filter(|attr| attr.path().is_ident("tree")) {
        attr.parse_nested_meta(|meta| {
            if !meta.path.is_ident("static") {
                let name = meta.path.to_token_stream().to_string();
                return Err(meta.error(format!("`{name}` is not known here; a field takes `#[tree(static)]`")));
            }
            if is_static {
                return Err(meta.error("`static` is given twice"));
            }
            is_static = true;
            Ok(())
        })?;
    }
    Ok(is_static)
}

/// Rejects attributes where they have no meaning.
fn no_attributes(attrs: &[Attribute], place: &str) -> Result<()> {
    match attrs.iter().find(|attr| attr.path().is_ident("tree")) {
        Some(attr) => {
            Err(Error::new_spanned(attr, format!("{place} takes no `tree` attribute; fields take `#[tree(static)]`")))
        }
        None => Ok(()),
    }
}
