//! Targets of ahead-of-time compilation.

use std::fmt;
use std::str::FromStr;

use remat_ir::{Error, ErrorKind, Result};

use crate::Chip;

/// A number of chips of one kind, for which a program is compiled even if there is none in the machine.
///
/// As text it is the name of a chip, optionally followed by a colon and the number of chips or the sizes of a slice.
///
/// ```
/// use remat_xla::Target;
/// let target: Target = "tpu-v5e:8".parse()?;
/// assert_eq!((target.to_string().as_str(), target.chips()), ("tpu-v5e:2x4", 8));
/// assert_eq!("h200".parse::<Target>()?.chips(), 1);
/// let error = "h200:0x8".parse::<Target>().unwrap_err();
/// assert_eq!(error.message(), "`0x8` is not a number of chips or the sizes of a slice, such as `8` or `2x4`");
/// # Ok::<(), remat_ir::Error>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Target {
    chip: &'static Chip,
    mesh: Vec<usize>,
}

/// The most chips of a target: the size of the largest slices that exist.
const MOST_CHIPS: usize = 1 << 14;

impl Target {
    /// This many chips, in the slice of this size that can be rented.
    ///
    /// # Errors
    /// If there is no such slice.
    pub fn new(chip: &'static Chip, chips: usize) -> Result<Target> {
        Target::of_mesh(chip, chip.slice(chips)?)
    }

    fn of_mesh(chip: &'static Chip, mesh: Vec<usize>) -> Result<Target> {
        let chips = mesh.iter().try_fold(1usize, |product, &size| product.checked_mul(size));
        if !chips.is_some_and(|chips| (1..=MOST_CHIPS).contains(&chips)) {
            let message = format!("a target has 1 to {MOST_CHIPS} chips");
            return Err(Error::new(ErrorKind::Argument, "target", message));
        }
        chip.topology(&mesh)?;
        Ok(Target { chip, mesh })
    }

    /// The chip.
    pub fn chip(&self) -> &'static Chip {
        self.chip
    }

    /// The number of chips.
    pub fn chips(&self) -> usize {
        self.mesh.iter().product()
    }

    /// The sizes of the slice.
    pub(crate) fn mesh(&self) -> &[usize] {
        &self.mesh
    }
}

impl FromStr for Target {
    type Err = Error;

    fn from_str(text: &str) -> Result<Target> {
        let (name, mesh) = text.split_once(':').unwrap_or((text, "1"));
        let chip = Chip::named(name)?;
        let sizes: Option<Vec<usize>> =
            mesh.split('x').map(|size| size.parse().ok().filter(|&size| size > 0)).collect();
        match sizes.as_deref() {
            Some(&[chips]) => Target::new(chip, chips),
            Some(sizes) => Target::of_mesh(chip, sizes.to_vec()),
            None => {
                let message =
                    format!("`{mesh}` is not a number of chips or the sizes of a slice, such as `8` or `2x4`");
                Err(Error::new(ErrorKind::Argument, "target", message))
            }
        }
    }
}

/// The name of the chip, followed by the sizes of the slice if there are several chips: `tpu-v5e:2x4`.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.chip.name)?;
        if self.chips() == 1 {
            return Ok(());
        }
        let sizes: Vec<String> = self.mesh.iter().map(usize::to_string).collect();
        write!(f, ":{}", sizes.join("x"))
    }
}
