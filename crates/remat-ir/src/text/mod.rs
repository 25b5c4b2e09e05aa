//! The text form of programs: [`Display`](std::fmt::Display) prints a [`Jaxpr`](crate::Jaxpr) as JAX prints one, and
//! [`Jaxpr::parse`](crate::Jaxpr::parse) reads it back.
//!
//! ```text
//! program  = { "let" NAME "=" jaxpr "in" } jaxpr
//! jaxpr    = "{" "lambda" {binder} ";" {binder} "." "let" {equation [";"]} "in" "(" [atom {"," atom} [","]] ")" "}"
//! equation = {binder} "=" OPERATION [ "[" {PARAMETER "=" value} "]" ] {atom}
//! binder   = NAME ":" aval                          an output that nothing uses prints as "_"
//! atom     = NAME | literal
//! literal  = NUMBER ":" DTYPE "[" "]"               also True, False, inf, -inf, nan and nan(BITS)
//! aval     = DTYPE [ "<" MEMORY ">" ] "[" [SIZE {"," SIZE}] "]"
//! value    = "None" | "True" | "False" | INTEGER | WORD | "\"TEXT\"" | DTYPE | literal | policy | jaxpr | NAME
//!          | "(" [value {"," value} [","]] ")" | "[" [value {"," value} [","]] "]" | "(" {jaxpr | NAME} ")"
//! ```
//!
//! The binders before the first `;` are the constants of a closed program. White space only separates tokens, and `#` begins a comment up
//! to the end of the line. A program that is used more than once is bound before by `let`. The words `in`, `let`, `lambda`, `nan` and `inf`
//! are never printed as names of variables.
//!
//! The values of constants are not printed.

mod lex;
mod parse;
mod policy;
mod print;

pub(crate) use print::{Notes, print_with_notes};
pub use print::{Part, PrintOptions};
