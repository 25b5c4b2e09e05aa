//! Topologies: descriptions of chips that need not be in the machine, and programs compiled for them.

use remat_ir::{Error, ErrorKind, Result};

use super::given::{given, slice};
use super::library::{Library, text};
use super::memory::Bytes;
use super::sys::{self, Arguments, Handle};
use super::sys_optional as optional;

/// A description of chips and of the links between them.
pub(crate) struct Topology {
    library: Library,
    handle: Handle,
}

/// The description of a chip.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Description {
    /// The plugin's name for the chip.
    pub(crate) kind: String,
    /// The bytes of its memory that programs may use, if the plugin reports them.
    pub(crate) memory: Option<u64>,
}

impl Topology {
    /// The chips of this name, with text options.
    pub(crate) fn new(library: Library, name: &str, options: &[(&str, &str)]) -> Result<Topology> {
        let options: Vec<sys::NamedValue> =
            options.iter().map(|(name, value)| sys::NamedValue::text(name, value)).collect();
        let mut args = optional::TopologyDescriptionCreate {
            topology_name: name.as_ptr().cast(),
            topology_name_size: name.len(),
            create_options: options.as_ptr(),
            num_options: options.len(),
            ..optional::TopologyDescriptionCreate::new()
        };
        // SAFETY: the name and the options live until the call returns.
        unsafe { library.call_as(ErrorKind::Argument, &mut args) }?;
        Ok(Topology { library, handle: given("PJRT_TopologyDescription_Create", args.topology)? })
    }

    /// The version of the compiler.
    pub(crate) fn platform_version(&self) -> Result<String> {
        let mut args = optional::TopologyDescriptionPlatformVersion {
            topology: self.handle,
            ..optional::TopologyDescriptionPlatformVersion::new()
        };
        // SAFETY: the topology exists, and owns the text until it is freed.
        unsafe {
            self.library.call(&mut args)?;
            Ok(text(args.platform_version, args.platform_version_size))
        }
    }

    /// The chips.
    pub(crate) fn devices(&self) -> Result<Vec<Description>> {
        let mut args = optional::TopologyDescriptionGetDeviceDescriptions {
            topology: self.handle,
            ..optional::TopologyDescriptionGetDeviceDescriptions::new()
        };
        // SAFETY: the topology exists, and has this many handles at the address until it is freed.
        unsafe {
            self.library.call(&mut args)?;
            let handles = slice(args.descriptions, args.num_descriptions);
            handles.iter().map(|&handle| description(self.library, handle)).collect()
        }
    }

    /// Compiles a module in MLIR's text format, and returns the memory of a run on each chip. The options are those of
    /// [`crate::compile_options`], encoded.
    pub(crate) fn compile(&self, module: &str, options: &[u8]) -> Result<Bytes> {
        let program = sys::Program::mlir(module);
        let mut args = optional::Compile {
            topology: self.handle,
            program: &program,
            compile_options: options.as_ptr().cast(),
            compile_options_size: options.len(),
            ..optional::Compile::new()
        };
        // SAFETY: the topology is there, and the module and the options live until the call returns.
        unsafe { self.library.call_as(ErrorKind::Argument, &mut args) }?;
        let executable = given("PJRT_Compile", args.executable)?;
        // SAFETY: the executable is ours, and is freed after it is queried.
        let bytes = unsafe {
            let bytes = Bytes::of(self.library, executable);
            self.library.free(sys::ExecutableDestroy { executable, ..sys::ExecutableDestroy::new() });
            bytes?
        };
        bytes.ok_or_else(Bytes::untold)
    }
}

impl Drop for Topology {
    fn drop(&mut self) {
        let topology = self.handle;
        // SAFETY: the handle belongs to this topology alone, and descriptions are copied when they are read.
        unsafe {
            self.library
                .free(optional::TopologyDescriptionDestroy { topology, ..optional::TopologyDescriptionDestroy::new() })
        };
    }
}

/// A plugin's description of a chip.
///
/// # Safety
/// The handle is a description of a device of this plugin.
pub(super) unsafe fn description(library: Library, device_description: Handle) -> Result<Description> {
    let mut kind = optional::DeviceDescriptionKind { device_description, ..optional::DeviceDescriptionKind::new() };
    let mut attributes =
        optional::DeviceDescriptionAttributes { device_description, ..optional::DeviceDescriptionAttributes::new() };
    // SAFETY: by the contract of this function; text and attributes exist as long as the description.
    unsafe {
        library.call(&mut kind)?;
        library.call(&mut attributes)?;
        let attributes = slice(attributes.attributes, attributes.num_attributes);
        let memory = attributes
            .iter()
            .find(|value| value.kind == sys::INT64 && text(value.name, value.name_size) == "device_memory_bytes_limit");
        let memory = memory.and_then(|value| u64::try_from(value.value.int64).ok());
        Ok(Description { kind: text(kind.device_kind, kind.device_kind_size), memory })
    }
}

impl Library {
    /// Text and integer attributes of the plugin, as text: versions of its components.
    pub(crate) fn attributes(self) -> Result<Vec<(String, String)>> {
        let mut args = optional::PluginAttributes::new();
        // SAFETY: the attributes live as long as the process.
        unsafe {
            self.call(&mut args)?;
            let values = slice(args.attributes, args.num_attributes).iter();
            let read = values.filter_map(|value| {
                let read = match value.kind {
                    sys::STRING => text(value.value.string, value.value_size),
                    sys::INT64 => value.value.int64.to_string(),
                    sys::INT64_LIST => {
                        let numbers = slice(value.value.int64_list, value.value_size).iter().map(i64::to_string);
                        numbers.collect::<Vec<_>>().join(".")
                    }
                    _ => return None,
                };
                Some((text(value.name, value.name_size), read))
            });
            Ok(read.collect())
        }
    }

    /// Fails unless the plugin has all functions that compiling without a device needs.
    pub(crate) fn expect_ahead(self) -> Result<()> {
        let needed = [
            optional::TopologyDescriptionCreate::INDEX,
            optional::TopologyDescriptionGetDeviceDescriptions::INDEX,
            optional::Compile::INDEX,
            optional::ExecutableGetCompiledMemoryStats::INDEX,
        ];
        let is_missing = |&&(_, index): &&(&str, usize)| needed.contains(&index) && !self.has(index);
        match optional::FUNCTIONS.iter().find(is_missing) {
            None => Ok(()),
            Some((name, _)) => Err(Error::new(ErrorKind::Io, "pjrt", format!("the plugin has no function {name}"))),
        }
    }
}
