//! Chips that need not be in the machine: their descriptions, and programs that are compiled for them.

use remat_ir::{Error, ErrorKind, Result};

use super::given::{given, slice};
use super::library::{Library, text};
use super::sys::{self, Arguments, Handle};
use super::sys_ahead as ahead;

/// A description of chips and of the links between them.
pub(crate) struct Topology {
    library: Library,
    handle: Handle,
}

/// What is known of a chip.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Description {
    /// What the plugin calls the chip.
    pub(crate) kind: String,
    /// The bytes of its memory that programs may use, where the plugin tells.
    pub(crate) memory: Option<u64>,
}

/// Bytes of a compiled program, as the plugin counts them for one chip.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Bytes {
    pub(crate) code: u64,
    pub(crate) arguments: u64,
    pub(crate) outputs: u64,
    pub(crate) aliased: u64,
    pub(crate) temporaries: u64,
    pub(crate) host_arguments: u64,
    pub(crate) host_outputs: u64,
    pub(crate) host_temporaries: u64,
    /// Arguments, outputs and temporaries in the chip's memory, where a plugin newer than 0.104 counts them.
    pub(crate) allocated: u64,
}

impl Topology {
    /// The chips of this name, with options that are texts.
    pub(crate) fn new(library: Library, name: &str, options: &[(&str, &str)]) -> Result<Topology> {
        let options: Vec<sys::NamedValue> =
            options.iter().map(|(name, value)| sys::NamedValue::text(name, value)).collect();
        let mut args = ahead::TopologyDescriptionCreate {
            topology_name: name.as_ptr().cast(),
            topology_name_size: name.len(),
            create_options: options.as_ptr(),
            num_options: options.len(),
            ..ahead::TopologyDescriptionCreate::new()
        };
        // SAFETY: the name and the options live until the call returns.
        unsafe { library.call_as(ErrorKind::Argument, &mut args) }?;
        Ok(Topology { library, handle: given("PJRT_TopologyDescription_Create", args.topology)? })
    }

    /// The version of the compiler.
    pub(crate) fn platform_version(&self) -> Result<String> {
        let mut args = ahead::TopologyDescriptionPlatformVersion {
            topology: self.handle,
            ..ahead::TopologyDescriptionPlatformVersion::new()
        };
        // SAFETY: the topology is there, and has the text until it is freed.
        unsafe {
            self.library.call(&mut args)?;
            Ok(text(args.platform_version, args.platform_version_size))
        }
    }

    /// The chips.
    pub(crate) fn devices(&self) -> Result<Vec<Description>> {
        let mut args = ahead::TopologyDescriptionGetDeviceDescriptions {
            topology: self.handle,
            ..ahead::TopologyDescriptionGetDeviceDescriptions::new()
        };
        // SAFETY: the topology is there, and has as many handles at this address until it is freed.
        unsafe {
            self.library.call(&mut args)?;
            let handles = slice(args.descriptions, args.num_descriptions);
            handles.iter().map(|&handle| description(self.library, handle)).collect()
        }
    }

    /// Compiles a module in MLIR's text, and gives the memory of a run on each chip. The options are those of
    /// [`crate::compile_options`], encoded.
    pub(crate) fn compile(&self, module: &str, options: &[u8]) -> Result<Bytes> {
        let program = sys::Program::mlir(module);
        let mut args = ahead::Compile {
            topology: self.handle,
            program: &program,
            compile_options: options.as_ptr().cast(),
            compile_options_size: options.len(),
            ..ahead::Compile::new()
        };
        // SAFETY: the topology is there, and the module and the options live until the call returns.
        unsafe { self.library.call_as(ErrorKind::Argument, &mut args) }?;
        let executable = given("PJRT_Compile", args.executable)?;
        let mut stats = ahead::LongMemoryStats { executable, ..ahead::LongMemoryStats::new() };
        // SAFETY: the executable is ours. A plugin that knows fewer fields than the struct has leaves the last ones zero.
        unsafe {
            let counted = self.library.call(&mut stats);
            self.library.free(sys::ExecutableDestroy { executable, ..sys::ExecutableDestroy::new() });
            counted?;
        }
        let bytes = |count: i64| u64::try_from(count).unwrap_or(0);
        Ok(Bytes {
            code: bytes(stats.generated_code_size_in_bytes),
            arguments: bytes(stats.argument_size_in_bytes),
            outputs: bytes(stats.output_size_in_bytes),
            aliased: bytes(stats.alias_size_in_bytes),
            temporaries: bytes(stats.temp_size_in_bytes),
            host_arguments: bytes(stats.host_argument_size_in_bytes),
            host_outputs: bytes(stats.host_output_size_in_bytes),
            host_temporaries: bytes(stats.host_temp_size_in_bytes),
            allocated: bytes(stats.total_allocation_bytes),
        })
    }
}

impl Drop for Topology {
    fn drop(&mut self) {
        let topology = self.handle;
        // SAFETY: the handle is this topology's alone, and descriptions are copied when they are read.
        unsafe {
            self.library
                .free(ahead::TopologyDescriptionDestroy { topology, ..ahead::TopologyDescriptionDestroy::new() })
        };
    }
}

/// What a plugin says of a chip.
///
/// # Safety
/// The handle is a description of a device of this plugin.
pub(super) unsafe fn description(library: Library, device_description: Handle) -> Result<Description> {
    let mut kind = ahead::DeviceDescriptionKind { device_description, ..ahead::DeviceDescriptionKind::new() };
    let mut attributes =
        ahead::DeviceDescriptionAttributes { device_description, ..ahead::DeviceDescriptionAttributes::new() };
    // SAFETY: by the contract of this function; text and attributes are there as long as the description.
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
    /// Attributes of the plugin that are texts or integers, as text: versions of what it is built of.
    pub(crate) fn attributes(self) -> Result<Vec<(String, String)>> {
        let mut args = ahead::PluginAttributes::new();
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
        match ahead::FUNCTIONS.iter().find(|&&(_, index)| !self.has(index)) {
            None => Ok(()),
            Some((name, _)) => Err(Error::new(ErrorKind::Io, "pjrt", format!("the plugin has no function {name}"))),
        }
    }
}
