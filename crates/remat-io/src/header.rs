//! The header of a safetensors file: its length in eight bytes, then JSON with names, dtypes, shapes and offsets.
//!
//! Source: <https://github.com/huggingface/safetensors>, "Format". The crate of that name reads only files that are entirely in memory, and
//! its errors do not name the tensor; the tests compare this module with it.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use remat::files::{cannot, wrong};
use remat::ir::counted;
use remat::{DType, Result};
use serde::de::{self, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::name::RESERVED;

/// The bytes of the header's length.
const LENGTH: u64 = 8;

/// The longest header, as in the crate `safetensors`.
const LONGEST: u64 = 100_000_000;

/// The dtypes, from the narrowest alignment to the widest as files are ordered, and their names in files.
const DTYPES: [(DType, &str); 13] = [
    (DType::Bool, "BOOL"),
    (DType::U8, "U8"),
    (DType::I8, "I8"),
    (DType::I16, "I16"),
    (DType::U16, "U16"),
    (DType::F16, "F16"),
    (DType::Bf16, "BF16"),
    (DType::I32, "I32"),
    (DType::U32, "U32"),
    (DType::F32, "F32"),
    (DType::F64, "F64"),
    (DType::I64, "I64"),
    (DType::U64, "U64"),
];

/// The first bytes of files of other formats.
const FOREIGN: [(&[u8], &str); 6] = [
    (b"PK\x03\x04", "a zip archive, as PyTorch's `torch.save` and NumPy's `savez` write"),
    (b"\x80\x02", "a Python pickle, as old versions of PyTorch write"),
    (b"GGUF", "a GGUF file"),
    (b"\x89HDF", "an HDF5 file"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"version https://git-lfs", "a pointer of Git LFS: the file itself was not downloaded"),
];

/// The entry of a tensor in the header.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    /// The dtype, or the name of one that remat does not support.
    pub(crate) dtype: std::result::Result<DType, String>,
    pub(crate) shape: Vec<usize>,
    /// The offset of its first byte, from the end of the header.
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// The header of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Header {
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) tensors: BTreeMap<String, Entry>,
    /// Where the header ends and the bytes of the tensors begin.
    pub(crate) data: u64,
}

/// The rank of a dtype in the order of tensors in a file, which aligns them.
pub(crate) fn alignment_order(dtype: DType) -> usize {
    DTYPES.iter().position(|&(known, _)| known == dtype).unwrap_or(0)
}

/// Encodes the header of tensors that follow one another in this order.
///
/// # Errors
/// If it becomes too long; those of JSON.
pub(crate) fn encode<'a>(
    metadata: &BTreeMap<String, String>,
    tensors: impl IntoIterator<Item = (&'a str, DType, &'a [usize])>,
) -> std::result::Result<Vec<u8>, String> {
    let mut end = 0;
    let fields = tensors.into_iter().map(|(name, dtype, shape)| {
        let start = end;
        end += shape.iter().product::<usize>() * dtype.size();
        let dtype = DTYPES[alignment_order(dtype)].1.to_string();
        (name, Fields { dtype, shape: shape.to_vec(), data_offsets: (start as u64, end as u64) })
    });
    let json =
        serde_json::to_vec(&Written { metadata, tensors: fields.collect() }).map_err(|error| error.to_string())?;
    // Tensors begin at a multiple of 8.
    let padded = json.len().next_multiple_of(8);
    if padded as u64 > LONGEST {
        return Err(format!("its header would have {padded} bytes; readers take {LONGEST}"));
    }
    let mut bytes = Vec::with_capacity(padded + 8);
    bytes.extend((padded as u64).to_le_bytes());
    bytes.extend(json);
    bytes.resize(padded + 8, b' ');
    Ok(bytes)
}

/// Reads the header of a file.
///
/// # Errors
/// If the file has another format, is damaged or truncated, or cannot be read.
pub(crate) fn read(operation: &str, path: &Path, file: &mut (impl Read + Seek)) -> Result<Header> {
    let failed = |error: &std::io::Error| cannot(operation, "read", path, error);
    let len = file.seek(SeekFrom::End(0)).map_err(|error| failed(&error))?;
    file.rewind().map_err(|error| failed(&error))?;
    let mut first = Vec::new();
    file.by_ref().take(32).read_to_end(&mut first).map_err(|error| failed(&error))?;
    let Some(&length) = first.first_chunk::<8>() else {
        return Err(wrong(operation, path, format!("is not a safetensors file: it has {len} bytes")));
    };
    let length = u64::from_le_bytes(length);
    if length > LONGEST || first.get(8).is_some_and(|&byte| byte != b'{') {
        let what = FOREIGN.iter().find(|(magic, _)| first.starts_with(magic)).map(|(_, what)| format!("it is {what}"));
        let what = what.unwrap_or_else(|| "it does not begin with a header".to_string());
        return Err(wrong(operation, path, format!("is not a safetensors file: {what}")));
    }
    if length > len - LENGTH {
        let message = format!("is cut off: its header has {length} bytes and {} are there", len - LENGTH);
        return Err(wrong(operation, path, message));
    }
    file.seek(SeekFrom::Start(LENGTH)).map_err(|error| failed(&error))?;
    let mut json = Vec::new();
    file.by_ref().take(length).read_to_end(&mut json).map_err(|error| failed(&error))?;
    let parsed: Parsed = serde_json::from_slice(&json)
        .map_err(|error| wrong(operation, path, format!("has a damaged header: {error}")))?;
    let header = Header { metadata: parsed.0.metadata, tensors: parsed.0.tensors, data: LENGTH + length };
    header.check(len - header.data).map_err(|message| wrong(operation, path, message))?;
    Ok(header)
}

impl Header {
    /// Checks that the tensors follow one another without gaps to the end of the file, each as long as its dtype and shape.
    fn check(&self, available: u64) -> std::result::Result<(), String> {
        let mut ordered: Vec<(&String, &Entry)> = self.tensors.iter().collect();
        ordered.sort_by_key(|(_, entry)| (entry.start, entry.end));
        let mut position = 0;
        for (name, entry) in ordered {
            let (start, end) = (entry.start, entry.end);
            if start != position || end < start {
                let message = format!("it puts tensor `{name}` at bytes {start} to {end}, but byte {position} is next");
                return Err(format!("has a damaged header: {message}"));
            }
            if let Ok(dtype) = &entry.dtype {
                let size = entry.shape.iter().try_fold(dtype.size(), |size, &n| size.checked_mul(n));
                if size.map(|size| size as u64) != Some(end - start) {
                    let message = format!("it gives tensor `{name}`, {dtype}{:?}, {} bytes", entry.shape, end - start);
                    return Err(format!("has a damaged header: {message}"));
                }
            }
            if end > available {
                let missing = counted((end - available) as usize, "byte");
                return Err(format!("is cut off: tensor `{name}` ends {missing} beyond the end of the file"));
            }
            position = end;
        }
        if position < available {
            let surplus = counted((available - position) as usize, "byte");
            return Err(format!("is damaged: it has {surplus} after its last tensor"));
        }
        Ok(())
    }
}

/// The fields of a tensor in JSON.
#[derive(Serialize, Deserialize)]
struct Fields {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (u64, u64),
}

/// A header to write, with its tensors in their order in the file.
struct Written<'a> {
    metadata: &'a BTreeMap<String, String>,
    tensors: Vec<(&'a str, Fields)>,
}

impl Serialize for Written<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if !self.metadata.is_empty() {
            map.serialize_entry(RESERVED, self.metadata)?;
        }
        for (name, fields) in &self.tensors {
            map.serialize_entry(name, fields)?;
        }
        map.end()
    }
}

/// A parsed header. A derived map would keep only the last of two tensors with the same name, and its errors would not name it.
struct Parsed(Header);

impl<'de> Deserialize<'de> for Parsed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Parsed, D::Error> {
        deserializer.deserialize_map(Tensors)
    }
}

struct Tensors;

impl<'de> Visitor<'de> for Tensors {
    type Value = Parsed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Parsed, A::Error> {
        let mut header = Header::default();
        while let Some(name) = map.next_key::<String>()? {
            let place = |error: A::Error| de::Error::custom(format!("`{name}`: {error}"));
            if name == RESERVED {
                header.metadata = map.next_value().map_err(place)?;
                continue;
            }
            let fields: Fields = map.next_value().map_err(place)?;
            let known = DTYPES.iter().find(|(_, known)| *known == fields.dtype);
            let dtype = known.map(|&(dtype, _)| dtype).ok_or(fields.dtype);
            let (start, end) = fields.data_offsets;
            let entry = Entry { dtype, shape: fields.shape, start, end };
            if header.tensors.insert(name.clone(), entry).is_some() {
                return Err(de::Error::custom(format!("it has two tensors of the name `{name}`")));
            }
        }
        Ok(Parsed(header))
    }
}
