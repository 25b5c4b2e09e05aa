//! Writes safetensors files.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use remat::files::{self, cannot};
use remat::ir::Aval;
use remat::{DType, Device, Error, ErrorKind, Result, Tree};

use crate::failure::of_tensor;
use crate::name::{self, Named};
use crate::{element, header};

/// The options of [`save_with`].
///
/// ```
/// use remat::Tensor;
/// use remat_io::{SafeTensors, SaveOptions};
///
/// let path = tempfile::tempdir()?.keep().join("x.safetensors");
/// let metadata = [("format".to_string(), "pt".to_string())].into();
/// remat_io::save_with(&SaveOptions { metadata }, &path, &Tensor::from(1.0f32))?;
/// assert_eq!(SafeTensors::open(&path)?.metadata()["format"], "pt");
/// # std::fs::remove_dir_all(path.parent().unwrap())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct SaveOptions {
    /// Metadata for the header of the file. (`transformers` requires `format`: `pt`.)
    pub metadata: BTreeMap<String, String>,
}

/// Writes the tensors of a tree into a file, each with its dtype, under its [name](crate::names).
///
/// The tensors are written one by one without copying those on the host; those on a device are copied to the host one at a time. The file
/// is written atomically, and replaces a file or link at `path`.
///
/// ```
/// use remat::Tensor;
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("pair.safetensors");
/// remat_io::save(&path, &(Tensor::new([1.0f32, 2.0]), Tensor::from(7)))?;
/// assert_eq!(remat_io::SafeTensors::open(&path)?.names().collect::<Vec<_>>(), ["0", "1"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If a tensor has no elements to write (it is failed, traced or abstract), as [`names`](crate::names), and if the file cannot be written,
/// for example when the disk is full. Then a file at `path` is unchanged.
#[track_caller]
pub fn save<T: Tree>(path: impl AsRef<Path>, tree: &T) -> Result<()> {
    save_with(&SaveOptions::default(), path, tree)
}

/// As [`save`], with options.
///
/// # Errors
/// As [`save`].
#[track_caller]
pub fn save_with<T: Tree>(options: &SaveOptions, path: impl AsRef<Path>, tree: &T) -> Result<()> {
    let (loc, path) = (remat::layer::location(), path.as_ref());
    let tensors = name::named(tree)?;
    files::write("save", path, |out| write("save", path, tensors, &options.metadata, out))
        .map_err(|error| error.at(loc))
}

/// Writes tensors into a stream, for a file at `path`. Each is dropped as soon as it is written.
///
/// # Errors
/// If a tensor has no elements; if the stream cannot be written, with the name of the tensor.
pub(crate) fn write(
    operation: &str,
    path: &Path,
    tensors: Vec<Named>,
    metadata: &BTreeMap<String, String>,
    out: &mut dyn Write,
) -> Result<()> {
    let mut ordered = Vec::new();
    for named in tensors {
        let Named { name, tensor, transposed } = &named;
        let aval = aval(&named).map_err(|error| of_tensor(operation, path, name, &error))?;
        // Errors that can be known are found before a byte is written.
        if tensor.is_traced() || tensor.is_abstract() {
            tensor.array().map_err(|error| of_tensor(operation, path, name, &error))?;
        }
        let shape = if *transposed { aval.shape.iter().rev().copied().collect() } else { aval.shape.to_vec() };
        ordered.push((aval.dtype, shape, named));
    }
    let alignment = |dtype: DType| std::cmp::Reverse(header::alignment_order(dtype));
    ordered.sort_by(|(x, _, a), (y, _, b)| alignment(*x).cmp(&alignment(*y)).then_with(|| a.name.cmp(&b.name)));
    let listed = ordered.iter().map(|(dtype, shape, named)| (named.name.as_str(), *dtype, &shape[..]));
    let header = header::encode(metadata, listed).map_err(|message| {
        Error::new(ErrorKind::Io, operation, format!("cannot write `{}`: {message}", path.display()))
    })?;
    out.write_all(&header).map_err(|error| cannot(operation, "write", path, &error))?;
    for (_, _, Named { name, tensor, transposed }) in ordered {
        let tensor = if transposed { tensor.t() } else { tensor };
        let host = tensor.to_device(&Device::cpu());
        drop(tensor);
        let array = host.array().map_err(|error| of_tensor(operation, path, &name, &error))?;
        out.write_all(element::bytes(array))
            .map_err(|error| cannot(operation, &format!("write tensor `{name}` of"), path, &error))?;
    }
    Ok(())
}

/// The dtype and shape of a tensor in the file; to be transposed, it must be a matrix.
fn aval(named: &Named) -> Result<&Aval> {
    let aval = named.tensor.aval()?;
    if named.transposed && aval.rank() != 2 {
        return Err(Error::new(ErrorKind::Shape, "save", format!("{aval} is not a matrix")));
    }
    Ok(aval)
}
