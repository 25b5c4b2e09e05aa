//! A pass over a program, of which an engine's pipeline is a list.

use std::borrow::Cow;

use crate::{Jaxpr, Result};

/// A pass: a function from a program to one that computes the same.
#[derive(Clone, Copy)]
pub struct Pass {
    /// The name of the pass.
    pub name: &'static str,
    /// The reason for the pass.
    pub why: &'static str,
    /// The pass itself. It takes the program borrowed or owned, so that a pass that changes nothing costs no copy.
    pub run: for<'a> fn(Cow<'a, Jaxpr>) -> Result<Cow<'a, Jaxpr>>,
}

impl Pass {
    /// The program after the pass, which debug builds check.
    ///
    /// ```
    /// use std::borrow::Cow;
    /// use remat_ir::{Jaxpr, Pass};
    /// let pass = Pass { name: "none", why: "an example of a pass that changes nothing", run: |program| Ok(program) };
    /// let program: Jaxpr = "{ lambda ; a:f32[]. let b:f32[] = sin a in (b,) }".parse()?;
    /// assert_eq!(*pass.apply(Cow::Borrowed(&program))?, program);
    /// # Ok::<(), remat_ir::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the program is not well formed; in debug builds also if the pass makes it so.
    pub fn apply<'a>(&self, jaxpr: Cow<'a, Jaxpr>) -> Result<Cow<'a, Jaxpr>> {
        let jaxpr = (self.run)(jaxpr)?;
        if remat_debug::CHECKS
            && let Err(faults) = crate::check(&jaxpr)
        {
            let message = format!("the pass `{}` made a faulty program:\n{faults}", self.name);
            return Err(crate::Error::new(crate::ErrorKind::Internal, "transform", message));
        }
        Ok(jaxpr)
    }
}
