//! Reads safetensors files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use remat::files::{cannot, wrong};
use remat::ir::{Array, Aval, counted, did_you_mean};
use remat::{Error, ErrorKind, Result, Tensor, Tree, tree};

use super::index;
use crate::element;
use crate::failure::{listed, of_tensor};
use crate::header::{self, Header};
use crate::name::{self, Named};
use crate::open;

/// A safetensors file, or several with an index. Headers are read when it is opened; tensors are read on request.
///
/// ```
/// use remat::Tensor;
/// use remat_io::SafeTensors;
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("pair.safetensors");
/// remat_io::save(&path, &(Tensor::new([1.0f32, 2.0]), Tensor::from(7)))?;
/// let file = SafeTensors::open(&path)?;
/// assert_eq!(file.aval("0")?.to_string(), "f32[2]");
/// assert_eq!(file.tensor("1")?.item::<i32>()?, 7);
/// let error = file.tensor("2").unwrap_err();
/// assert!(error.message().contains("has no tensor `2`"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SafeTensors {
    path: PathBuf,
    metadata: BTreeMap<String, String>,
    files: Vec<Opened>,
    /// The index of each tensor's file.
    tensors: BTreeMap<String, usize>,
}

/// One file.
#[derive(Debug)]
struct Opened {
    path: PathBuf,
    file: Mutex<File>,
    header: Header,
}

/// The options of [`load_with`].
///
/// ```
/// use remat::{DType, Tensor};
/// use remat_io::LoadOptions;
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("half.safetensors");
/// remat_io::save(&path, &vec![Tensor::new([0.5f32, 3.0]).to_dtype(DType::Bf16), Tensor::from(1)])?;
/// let like = vec![Tensor::shape_only([2], DType::F32)];
/// let options = LoadOptions { cast_floats: true, ignore_surplus: true };
/// assert_eq!(remat_io::load_with(&options, &path, &like)?[0].to_vec::<f32>()?, [0.5, 3.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadOptions {
    /// Whether floats are converted to the dtype of the leaf of `like`, rounded to nearest; false by default: another dtype is an error.
    pub cast_floats: bool,
    /// Whether tensors of the file that `like` does not have are ignored; false by default: they are an error.
    pub ignore_surplus: bool,
}

/// Reads the tree of a file that [`save`](crate::save) wrote: the structure of `like` with the tensors of the file, found by their names.
///
/// The leaves of `like` give dtype, shape and device: each tensor goes to the device of its leaf. If the leaf is cut over several devices,
/// the tensor is cut in the same way, so that no device has more than its shard. A leaf may be abstract ([`Tensor::shape_only`]), as in a
/// model whose `init` runs in [`eval_shape`](remat::eval_shape). Then the loaded tensors are on the host, and `like` takes no memory.
///
/// ```
/// use remat::{DType, Tensor, eval_shape, nn::Linear, random};
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("layer.safetensors");
/// let layer = Linear::init(random::key(0), 3, 5, DType::F32);
/// remat_io::save(&path, &layer)?;
/// let like = eval_shape(|_: &()| Linear::init(random::key(0), 3, 5, DType::F32))(&())?;
/// assert!(like.weight.is_abstract());
/// assert_eq!(remat_io::load(&path, &like)?.weight.to_vec::<f32>()?, layer.weight.to_vec::<f32>()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If the file cannot be read, is damaged, truncated or has another format; if a tensor of the tree is missing, the file has others, or one
/// has another dtype or shape. The error names the file and the tensor.
#[track_caller]
pub fn load<T: Tree>(path: impl AsRef<Path>, like: &T) -> Result<T> {
    load_with(&LoadOptions::default(), path, like)
}

/// As [`load`], with options.
///
/// # Errors
/// As [`load`].
#[track_caller]
pub fn load_with<T: Tree>(options: &LoadOptions, path: impl AsRef<Path>, like: &T) -> Result<T> {
    let loc = remat::layer::location();
    let load = || SafeTensors::opened(path.as_ref())?.read_tree(options, like);
    load().map_err(|error: Error| error.at(loc))
}

/// The operation that errors name, unless the user called another one.
const LOAD: &str = "load";

/// Changes an error of [`LOAD`] to one of another operation, at the line of its call; other errors stay.
#[track_caller]
pub(crate) fn of_operation(operation: &'static str) -> impl Fn(Error) -> Error {
    let loc = remat::layer::location();
    move |error| match error.operation() {
        LOAD => Error::new(error.kind(), operation, error.message()).at(loc),
        _ => error.at(loc),
    }
}

impl SafeTensors {
    /// Opens a file and reads its header. A file whose name ends in `.json` is an index, such as `model.safetensors.index.json`, which
    /// lists the file of each tensor; these files are opened too.
    ///
    /// # Errors
    /// If a file cannot be read, is damaged, truncated or has another format; if the index names a tensor that its file does not have, or a
    /// file outside of its folder.
    #[track_caller]
    pub fn open(path: impl AsRef<Path>) -> Result<SafeTensors> {
        SafeTensors::opened(path.as_ref()).map_err(of_operation("SafeTensors::open"))
    }

    /// The same without a location, for [`load`].
    pub(crate) fn opened(path: &Path) -> Result<SafeTensors> {
        let is_index = path.extension().is_some_and(|extension| extension == "json");
        if is_index { SafeTensors::open_index(path) } else { SafeTensors::open_file(path) }
    }

    fn open_file(path: &Path) -> Result<SafeTensors> {
        Ok(SafeTensors::of_one(path, Opened::open(path)?))
    }

    /// A file that is open already, which the path no longer needs to name. Both have one position: nobody else may read it meanwhile.
    pub(crate) fn of_file(path: &Path, file: &File) -> Result<SafeTensors> {
        let file = file.try_clone().map_err(|error| cannot(LOAD, "read", path, &error))?;
        Ok(SafeTensors::of_one(path, Opened::read(path, file)?))
    }

    fn of_one(path: &Path, file: Opened) -> SafeTensors {
        let tensors = file.header.tensors.keys().map(|name| (name.clone(), 0)).collect();
        SafeTensors { path: path.to_path_buf(), metadata: file.header.metadata.clone(), files: vec![file], tensors }
    }

    fn open_index(path: &Path) -> Result<SafeTensors> {
        let files = index::read(LOAD, path)?;
        let mut this = SafeTensors {
            path: path.to_path_buf(),
            metadata: BTreeMap::new(),
            files: Vec::new(),
            tensors: BTreeMap::new(),
        };
        for (name, tensors) in files {
            let file = Opened::open(&path.with_file_name(&name))?;
            if let Some(lost) = tensors.iter().find(|tensor| !file.header.tensors.contains_key(*tensor)) {
                let message = format!("has no tensor `{lost}`, which `{}` says is there", path.display());
                return Err(wrong(LOAD, &file.path, message));
            }
            this.metadata.extend(file.header.metadata.clone());
            this.tensors.extend(tensors.into_iter().map(|tensor| (tensor, this.files.len())));
            this.files.push(file);
        }
        Ok(this)
    }

    /// The path that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The metadata of the header, or of all files' headers.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// The names of the tensors, sorted.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Dtype and shape of a tensor.
    ///
    /// # Errors
    /// If there is no tensor with this name (the error suggests a similar one), or remat does not support its dtype.
    #[track_caller]
    pub fn aval(&self, name: &str) -> Result<Aval> {
        self.find(name).map(|(_, aval, _)| aval).map_err(of_operation("SafeTensors::aval"))
    }

    /// A tensor, read into the host's memory.
    ///
    /// # Errors
    /// As [`SafeTensors::aval`]; if the file cannot be read, or there is no memory for the tensor.
    #[track_caller]
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        self.read(name).map_err(of_operation("SafeTensors::tensor"))
    }

    /// The structure of `like` with the tensors of this file: see [`load`].
    ///
    /// # Errors
    /// As [`load`].
    #[track_caller]
    pub fn tree<T: Tree>(&self, like: &T) -> Result<T> {
        self.read_tree(&LoadOptions::default(), like).map_err(of_operation("SafeTensors::tree"))
    }

    /// As [`SafeTensors::tree`], with options.
    ///
    /// # Errors
    /// As [`load`].
    #[track_caller]
    pub fn tree_with<T: Tree>(&self, options: &LoadOptions, like: &T) -> Result<T> {
        self.read_tree(options, like).map_err(of_operation("SafeTensors::tree_with"))
    }

    /// The same without a location, for [`load`].
    pub(crate) fn read_tree<T: Tree>(&self, options: &LoadOptions, like: &T) -> Result<T> {
        self.named_tree(options, like, name::named(like)?, |_| options.ignore_surplus)
    }

    /// The structure of `like`, whose leaves have these names in the file. Surplus tensors are an error unless `may_be_surplus`.
    ///
    /// # Errors
    /// As [`load`].
    pub(crate) fn named_tree<T: Tree>(
        &self,
        options: &LoadOptions,
        like: &T,
        leaves: Vec<Named>,
        may_be_surplus: impl Fn(&str) -> bool,
    ) -> Result<T> {
        self.expect_names(&leaves, may_be_surplus)?;
        for leaf in &leaves {
            self.expect_aval(options, leaf)?;
        }
        let mut tensors = Vec::new();
        for leaf in &leaves {
            let tensor = self.read(&leaf.name)?;
            tensors.push(fitted(tensor, leaf).map_err(|error| of_tensor(LOAD, &self.path, &leaf.name, &error))?);
        }
        let mut tensors = tensors.into_iter();
        // There is a tensor for each leaf.
        Ok(tree::map(like, |leaf| tensors.next().unwrap_or_else(|| leaf.clone())))
    }

    fn read(&self, name: &str) -> Result<Tensor> {
        let (opened, aval, start) = self.find(name)?;
        let mut file = opened.file.lock().unwrap_or_else(PoisonError::into_inner);
        let data = element::read(aval.dtype, aval.size(), |bytes| {
            file.seek(SeekFrom::Start(opened.header.data + start))?;
            file.read_exact(bytes)
        });
        let data = data.map_err(|error| cannot(LOAD, &format!("read tensor `{name}` of"), &opened.path, &error))?;
        Ok(Tensor::from_array(Array::new(aval, data)?))
    }

    /// The file of a tensor, its dtype and shape, and its offset after the header.
    fn find(&self, name: &str) -> Result<(&Opened, Aval, u64)> {
        let place = self.tensors.get(name).and_then(|&number| {
            let opened = self.files.get(number)?;
            Some((opened, opened.header.tensors.get(name)?))
        });
        let Some((opened, entry)) = place else {
            let known = || format!("; it has {}", listed(self.names()));
            let near = did_you_mean(name, self.names(), known);
            return Err(wrong(LOAD, &self.path, format!("has no tensor `{name}`{near}")));
        };
        match &entry.dtype {
            Ok(dtype) => Ok((opened, Aval::new(*dtype, entry.shape.iter().copied()), entry.start)),
            Err(unknown) => {
                let message = format!("has tensor `{name}` of dtype {unknown}, which remat does not have");
                Err(Error::new(ErrorKind::DType, LOAD, wrong(LOAD, &opened.path, message).message()))
            }
        }
    }

    /// Checks that the file has the tensors of a tree and no others.
    fn expect_names(&self, leaves: &[Named], may_be_surplus: impl Fn(&str) -> bool) -> Result<()> {
        let wanted: BTreeSet<&str> = leaves.iter().map(|leaf| leaf.name.as_str()).collect();
        let missing: Vec<&str> = wanted.iter().filter(|name| !self.tensors.contains_key(**name)).copied().collect();
        let surplus: Vec<&str> = self.names().filter(|name| !wanted.contains(name) && !may_be_surplus(name)).collect();
        if let Some(first) = missing.first() {
            let others = match missing.len() - 1 {
                0 => String::new(),
                more => format!(" (nor {more} more of the tree)"),
            };
            let known = || match surplus.len() {
                0 => String::new(),
                _ => format!("; it has {}, which the tree does not", listed(surplus.iter().copied())),
            };
            let near = did_you_mean(first, surplus.iter().copied(), known);
            return Err(wrong(LOAD, &self.path, format!("has no tensor `{first}`{others}{near}")));
        }
        if surplus.is_empty() {
            return Ok(());
        }
        let (count, names) = (counted(surplus.len(), "tensor"), listed(surplus.iter().copied()));
        Err(wrong(LOAD, &self.path, format!("has {count} that the tree does not: {names}")))
    }

    /// Checks that a tensor has the dtype and shape of a leaf.
    fn expect_aval(&self, options: &LoadOptions, leaf: &Named) -> Result<()> {
        let name = &leaf.name;
        let expected = leaf.tensor.aval().map_err(|error| of_tensor(LOAD, &self.path, name, &error))?;
        let expected = match leaf.transposed {
            true => expected.with_shape(expected.shape.iter().rev().copied()),
            false => expected.clone(),
        };
        let (opened, found, _) = self.find(name)?;
        let casts = options.cast_floats && found.dtype.is_float() && expected.dtype.is_float();
        let kind = match (found.shape == expected.shape, found.dtype == expected.dtype || casts) {
            (true, true) => return Ok(()),
            (false, _) => ErrorKind::Shape,
            (true, false) => ErrorKind::DType,
        };
        let path = opened.path.display();
        let message = format!("tensor `{name}` of `{path}` is {found} and must be {expected}");
        Err(Error::new(kind, LOAD, message))
    }
}

/// The tensor of a file as a leaf needs it: transposed, converted, and on its device.
fn fitted(mut tensor: Tensor, leaf: &Named) -> Result<Tensor> {
    if leaf.transposed {
        tensor = tensor.t();
    }
    let dtype = leaf.tensor.dtype()?;
    if tensor.dtype()? != dtype {
        tensor = tensor.to_dtype(dtype);
    }
    // An abstract or traced leaf has no device.
    if leaf.tensor.device().is_ok() {
        tensor = tensor.to_device_of(&leaf.tensor);
    }
    tensor.error().map_or(Ok(()), |error| Err(error.clone()))?;
    Ok(tensor)
}

impl Opened {
    fn open(path: &Path) -> Result<Opened> {
        Opened::read(path, open::open(path).map_err(|error| cannot(LOAD, "read", path, &error))?)
    }

    fn read(path: &Path, mut file: File) -> Result<Opened> {
        let header = header::read(LOAD, path, &mut file)?;
        Ok(Opened { path: path.to_path_buf(), file: Mutex::new(file), header })
    }
}
