//! Several devices of one client as one engine, for programs with meshes on arrays that stay cut over the devices.

use std::sync::Arc;

use remat_ir::{
    Array, Aval, CompileOptions, Device, DeviceArray, DeviceBuffer, Error, ErrorKind, Executable, Jaxpr, MemoryReport,
    MemorySpace, MemoryStats, Mesh, PartitionSpec, Pass, Result, Sharding, Value, counted, cut_shard, expect_arguments,
    join_shards,
};
use remat_opt::pipeline;

use super::clients;
use super::compiler::Compiler;
use super::program::{Placed, Program, donated, run_on_host};
use super::reshard::Resharding;
use crate::pjrt::Buffer;
use crate::sharding::Placement;
use crate::{Attention, Options, Platform, Plugin, stablehlo};

/// Several devices of XLA, and their engine.
///
/// A program with a mesh runs on the first devices, as many as the mesh has and in its order; one without a mesh runs on the first device.
/// [`Device::put`] copies the whole array to each of them. Arguments from the host are cut and copied to the devices. Results stay there,
/// cut as the program says, until they are read, and [`Executable::execute`] returns before they are computed. An argument that is cut
/// differently is resharded by the devices; it goes through the host only if it comes from other devices than the program's. Memory figures
/// are those of one device.
///
/// ```
/// use remat_ir::{Array, Device, Jaxpr};
/// use remat_xla::{Platform, XlaDevices};
/// # fn main() -> remat_ir::Result<()> {
/// // Without the plugin there is an error that names the command that installs it.
/// let Ok(devices) = XlaDevices::find(Platform::Cpu, 4) else { return Ok(()) };
/// let body = "{ lambda ; b:f32[1]. let c:f32[1] = psum[axes=(x,)] b in (c,) }";
/// let program: Jaxpr = format!(
///     "{{ lambda ; a:f32[4]. let b:f32[1] = shard_map[in_specs=((x,),) jaxpr={body} mesh=((x, 4),) out_specs=((),)] a in (b,) }}"
/// )
/// .parse()?;
/// let results = devices.compile(&program.into())?.run(vec![Array::from_vec(vec![1.0f32, 2.0, 3.0, 4.0], [4])?])?;
/// assert_eq!(results[0].as_slice::<f32>(), Some(&[10.0][..]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct XlaDevices(Arc<Inner>);

/// The most virtual devices: each has threads of its own, and the plugin ends the process if it cannot create them.
const MOST_VIRTUAL: usize = 1024;

struct Inner {
    compiler: Arc<Compiler>,
    platform: Platform,
    count: usize,
    name: String,
    resharding: Resharding,
}

impl XlaDevices {
    /// The first `count` devices of the plugin that [`Plugin::find`] finds. Those of CPUs are virtual: up to 1,024 of them share the cores.
    ///
    /// # Errors
    /// As [`Plugin::find`] and [`XlaDevices::of_plugin`].
    pub fn find(platform: Platform, count: usize) -> Result<XlaDevices> {
        XlaDevices::of_plugin(&Plugin::find(platform)?, count)
    }

    /// The first `count` devices of a plugin.
    ///
    /// # Errors
    /// If the plugin cannot create a client, because there is no such chip or its driver is missing; if it has fewer devices; if `count` is
    /// 0, or more than 1,024 for CPUs.
    pub fn of_plugin(plugin: &Plugin, count: usize) -> Result<XlaDevices> {
        let wrong = |message: String| Err(Error::new(ErrorKind::Argument, "xla", message));
        if count == 0 {
            return wrong("a group has at least one device".to_string());
        }
        let platform = plugin.platform();
        if platform == Platform::Cpu && count > MOST_VIRTUAL {
            return wrong(format!("asked for {count} virtual devices; the most is {MOST_VIRTUAL}"));
        }
        let compiler = clients::of(plugin, count)?;
        let client = &compiler.client;
        if count > client.num_devices() {
            let [there, of_all] = [client.num_devices(), client.num_devices_of_all()?];
            return wrong(too_few(platform, count, there, of_all));
        }
        let name = format!("{}:0-{}", platform.device_name(), count - 1);
        Ok(XlaDevices(Arc::new(Inner { compiler, platform, count, name, resharding: Resharding::default() })))
    }

    /// How an array is cut over several devices; `None` if it is on one device.
    pub fn sharding_of(array: &DeviceArray) -> Option<&Sharding> {
        array.buffer().map(|sharded: &Sharded| &sharded.sharding)
    }

    /// Copies an array of the host to the devices of `like`, an array of the same shape, and cuts it in the same way: each device gets only
    /// its shard. `None` if `like` is on one device.
    ///
    /// # Errors
    /// If the array cannot be cut in this way; if a device does not have enough memory for its shard.
    pub fn put_like(array: &Array, like: &DeviceArray) -> Result<Option<Value>> {
        let Some(Sharded { sharding, devices, .. }) = like.buffer() else { return Ok(None) };
        let (shards, aval) = (devices.upload(array, sharding)?, array.aval().clone());
        let (sharding, devices) = (sharding.clone(), devices.clone());
        Ok(Some(Value::on_device(Sharded { shards, aval, sharding, devices })))
    }

    pub(super) fn resharding(&self) -> &Resharding {
        &self.0.resharding
    }

    fn is(&self, other: &XlaDevices) -> bool {
        Arc::ptr_eq(&self.0.compiler.client, &other.0.compiler.client) && self.0.count == other.0.count
    }

    /// Cuts an array and copies each shard to its device.
    fn upload(&self, array: &Array, Sharding { mesh, spec }: &Sharding) -> Result<Vec<Buffer>> {
        let upload = |device| self.0.compiler.client.upload(&cut_shard(array, spec, mesh, device)?, device);
        (0..mesh.devices()).map(upload).collect()
    }
}

/// The message for a request of more devices than this process has, with the number of all processes.
fn too_few(platform: Platform, count: usize, there: usize, total: usize) -> String {
    let asked = format!("{count} devices of {} are asked for, and ", platform.device_name());
    if count > total || there == total {
        return format!("{asked}the plugin has {}", counted(total, "device"));
    }
    format!(
        "{asked}this process has {} of the {total} of its cluster; a program runs on the devices of one process: cut it over these, and sum gradients \
         between processes by remat::cluster",
        counted(there, "device")
    )
}

impl Device for XlaDevices {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn passes(&self) -> &'static [Pass] {
        pipeline::XLA
    }

    fn devices(&self) -> usize {
        self.0.count
    }

    fn compile(&self, jaxpr: &Arc<Jaxpr>) -> Result<Arc<dyn Executable>> {
        self.compile_with(jaxpr, &CompileOptions::default())
    }

    fn compile_with(&self, jaxpr: &Arc<Jaxpr>, options: &CompileOptions) -> Result<Arc<dyn Executable>> {
        let parts = Parts::compile(self, jaxpr.clone(), &options.donated)?;
        Ok(Arc::new(Compiled::new(self.clone(), Arc::new(parts))))
    }

    /// The whole array on every device, since no program has determined how it is cut.
    fn put(&self, array: &Array) -> Result<Value> {
        let sharding = whole(self.0.count)?;
        let (shards, aval) = (self.upload(array, &sharding)?, array.aval().clone());
        Ok(Value::on_device(Sharded { shards, aval, sharding, devices: self.clone() }))
    }

    fn steps(&self, jaxpr: &Arc<Jaxpr>) -> Result<String> {
        let attention = Attention::of_environment()?;
        stablehlo(jaxpr, &Options { platform: self.0.platform, attention, ..Options::default() })
    }
}

/// An array that is cut over devices. It may be pending.
pub(super) struct Sharded {
    /// The shards, one for each device of the mesh.
    pub(super) shards: Vec<Buffer>,
    aval: Aval,
    pub(super) sharding: Sharding,
    devices: XlaDevices,
}

impl Sharded {
    pub(super) fn is_whole(&self) -> bool {
        is_whole(&self.sharding)
    }

    /// Whether the devices of a program have the shards that it needs. A whole array is on each device, whatever the mesh.
    fn is_cut_as(&self, sharding: &Sharding) -> bool {
        let has_all = || self.is_whole() && is_whole(sharding) && self.shards.len() >= sharding.mesh.devices();
        self.sharding == *sharding || has_all()
    }
}

fn is_whole(sharding: &Sharding) -> bool {
    sharding.spec.axes().next().is_none()
}

/// The sharding of arrays that are whole on each of this many devices.
pub(super) fn whole(devices: usize) -> Result<Sharding> {
    Ok(Sharding { mesh: Arc::new(Mesh::new([("device", devices)])?), spec: PartitionSpec::default() })
}

impl DeviceBuffer for Sharded {
    fn aval(&self) -> &Aval {
        &self.aval
    }

    fn device_name(&self) -> &str {
        self.devices.name()
    }

    fn device(&self) -> Arc<dyn Device> {
        Arc::new(self.devices.clone())
    }

    fn wait(&self) -> Result<()> {
        self.shards.iter().try_for_each(Buffer::wait)
    }

    /// If every device has the whole array, one copy is read.
    fn to_host(&self) -> Result<Array> {
        if self.is_whole() {
            let missing = || Error::new(ErrorKind::Internal, "xla", "an array has no shards");
            return self.shards.first().ok_or_else(missing)?.download();
        }
        let shards = self.shards.iter().map(Buffer::download).collect::<Result<Vec<Array>>>()?;
        join_shards(&shards, &self.sharding.spec, &self.sharding.mesh)
    }
}

/// A compiled program, and its devices.
pub(super) struct Compiled {
    devices: XlaDevices,
    parts: Arc<Parts>,
}

/// A compiled program without a handle of its devices, so that the devices can keep it.
pub(super) struct Parts {
    program: Program,
    placement: Placement,
    ins: Vec<Aval>,
    outs: Vec<Aval>,
}

impl Parts {
    pub(super) fn compile(devices: &XlaDevices, jaxpr: Arc<Jaxpr>, donated: &[bool]) -> Result<Parts> {
        let placement = match Placement::of(&jaxpr)? {
            Some(placement) => placement,
            None => Placement::on_one_device(&jaxpr)?,
        };
        if placement.devices() > devices.0.count {
            let message = format!(
                "the program is for {} devices and {} has {}",
                placement.devices(),
                devices.name(),
                devices.0.count
            );
            return Err(Error::new(ErrorKind::Argument, "xla", message));
        }
        let (ins, outs) = (jaxpr.in_avals(), jaxpr.out_avals());
        if let Some(aval) = ins.iter().chain(&outs).find(|aval| aval.memory != MemorySpace::Device) {
            let message =
                format!("an argument or result is {aval}; programs for several devices have them in device memory");
            return Err(Error::new(ErrorKind::Argument, "xla", message));
        }
        let Inner { compiler, platform, .. } = &*devices.0;
        let ids = (0..placement.devices()).map(|device| compiler.client.device_id(device));
        let placed = Placed::OnAll(ids.collect::<Result<Vec<u64>>>()?);
        let of_one = [shards(&ins, &placement.ins)?, shards(&outs, &placement.outs)?];
        let program = Program::new((compiler.clone(), *platform), jaxpr, placed, of_one, donated)?;
        Ok(Parts { program, placement, ins, outs })
    }
}

impl Compiled {
    pub(super) fn new(devices: XlaDevices, parts: Arc<Parts>) -> Compiled {
        Compiled { devices, parts }
    }

    /// The argument as shards on the devices. If it has no other references, that stays so until the run has started.
    fn argument(&self, value: Value, sharding: &Sharding) -> Result<Arc<DeviceArray>> {
        let array = match value {
            Value::Host(array) => return self.cut(&array, sharding),
            Value::Device(array) => array,
        };
        match array.buffer().filter(|array: &&Sharded| array.devices.is(&self.devices)) {
            Some(sharded) if sharded.is_cut_as(sharding) => Ok(array),
            Some(_) => match self.devices.resharding().resharded(&self.devices, &array, sharding)? {
                Some(resharded) => Ok(resharded),
                None => self.cut(array.host()?, sharding),
            },
            None => {
                let message =
                    format!("the program is on {} and an argument on {}", self.devices.name(), array.device_name());
                Err(Error::new(ErrorKind::Argument, "xla", message))
            }
        }
    }

    fn cut(&self, array: &Array, sharding: &Sharding) -> Result<Arc<DeviceArray>> {
        let (shards, aval) = (self.devices.upload(array, sharding)?, array.aval().clone());
        Ok(DeviceArray::new(Sharded { shards, aval, sharding: sharding.clone(), devices: self.devices.clone() }))
    }
}

/// The shards of an argument.
fn shards_of(array: &DeviceArray) -> Result<&[Buffer]> {
    let lost = || Error::new(ErrorKind::Internal, "xla", "an argument is another engine's");
    array.buffer().map(|array: &Sharded| &array.shards[..]).ok_or_else(lost)
}

/// The avals of the shards of arrays.
fn shards(avals: &[Aval], shardings: &[Sharding]) -> Result<Vec<Aval>> {
    let shard = |(aval, Sharding { mesh, spec }): (&Aval, &Sharding)| spec.shard_aval("xla", aval, mesh);
    avals.iter().zip(shardings).map(shard).collect()
}

impl Executable for Compiled {
    fn run(&self, args: Vec<Array>) -> Result<Vec<Array>> {
        run_on_host(self, args)
    }

    /// Everything is checked before the run starts: a run that fails to start on one device leaves the others waiting.
    fn execute(&self, args: Vec<Value>) -> Result<Vec<Value>> {
        expect_arguments("xla", self.parts.ins.iter(), args.iter().map(Value::aval))?;
        let ready = self.parts.program.ready(&donated(&args))?;
        let args = args.into_iter().zip(&self.parts.placement.ins);
        let args = args.map(|(value, sharding)| self.argument(value, sharding)).collect::<Result<Vec<_>>>()?;
        let shards = args.iter().map(|array| shards_of(array)).collect::<Result<Vec<&[Buffer]>>>()?;
        let of_device = |device: usize| -> Vec<&Buffer> { shards.iter().map(|shards| &shards[device]).collect() };
        let lists: Vec<Vec<&Buffer>> = (0..self.parts.placement.devices()).map(of_device).collect();
        let mut results: Vec<_> = ready.loaded.run_on_all(&lists)?.into_iter().map(Vec::into_iter).collect();
        let value = |(aval, sharding): (&Aval, &Sharding)| {
            let shards = results.iter_mut().filter_map(Iterator::next).collect();
            let (aval, sharding, devices) = (aval.clone(), sharding.clone(), self.devices.clone());
            Value::on_device(Sharded { shards, aval, sharding, devices })
        };
        Ok(self.parts.outs.iter().zip(&self.parts.placement.outs).map(value).collect())
    }

    fn place(&self, argument: usize, value: Value) -> Result<Value> {
        match self.parts.placement.ins.get(argument) {
            Some(sharding) => self.argument(value, sharding).map(Value::Device),
            None => Ok(value),
        }
    }

    fn memory(&self) -> MemoryStats {
        self.parts.program.memory()
    }

    /// Of one device.
    fn memory_report(&self) -> MemoryReport {
        self.parts.program.memory_report()
    }

    /// Of one device.
    fn peak_of(&self, args: &[Value]) -> usize {
        self.parts.program.peak_of(args)
    }
}

impl Placement {
    /// The placement of a program without meshes: whole arrays on one device.
    fn on_one_device(jaxpr: &Jaxpr) -> Result<Placement> {
        let whole = whole(1)?;
        let (ins, outs) = (vec![whole.clone(); jaxpr.ins.len()], vec![whole.clone(); jaxpr.outs.len()]);
        Ok(Placement { meshes: vec![whole.mesh], ins, outs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_devices_than_a_process_has_are_refused() {
        let message = |count, there, of_all| too_few(Platform::Gpu, count, there, of_all);
        assert_eq!(message(4, 1, 1), "4 devices of cuda are asked for, and the plugin has 1 device");
        assert_eq!(message(32, 8, 16), "32 devices of cuda are asked for, and the plugin has 16 devices");
        let expected = "16 devices of cuda are asked for, and this process has 8 devices of the 16 of its cluster; a program runs on the devices of one \
                        process: cut it over these, and sum gradients between processes by remat::cluster";
        assert_eq!(message(16, 8, 16), expected);
        let Some(_) = crate::support::xla() else { return };
        let devices = XlaDevices::find(Platform::Cpu, 3).unwrap();
        assert_eq!(devices.0.compiler.client.num_devices_of_all().unwrap(), 3);
    }

    fn addresses(value: &Value) -> Vec<usize> {
        let Value::Device(array) = value else { panic!("it is on the host") };
        array.buffer::<Sharded>().unwrap().shards.iter().map(Buffer::address).collect()
    }

    /// On each device, the shards of the result take the memory of the donated argument's shards.
    #[test]
    fn shards_lie_in_the_memory_of_donated_arguments() {
        if crate::support::xla().is_none() {
            return;
        }
        let devices = XlaDevices::find(Platform::Cpu, 4).unwrap();
        let text = "{ lambda ; a:f32[8,4]. let b:f32[8,4] = sharding_constraint[mesh=((x, 4),) spec=(x,)] a; \
                    c:f32[8,4] = mul b 2.0:f32[]; d:f32[8,4] = sharding_constraint[mesh=((x, 4),) spec=(x,)] c in (d,) }";
        let compiled = devices.compile(&Arc::new(text.parse::<Jaxpr>().unwrap())).unwrap();
        let ones = Array::full(remat_ir::Literal::from_f64(remat_ir::DType::F32, 1.0), [8, 4]);
        let state = compiled.execute(vec![ones.into()]).unwrap();
        let before = addresses(&state[0]);
        let state = compiled.execute(state).unwrap();
        assert_eq!(addresses(&state[0]), before);
        let next = compiled.execute(state.clone()).unwrap();
        assert!(addresses(&next[0]).iter().all(|address| !before.contains(address)));
        assert_eq!(state[0].host().unwrap().as_slice::<f32>(), Some(&[4.0; 32][..]));
        assert_eq!(next[0].host().unwrap().as_slice::<f32>(), Some(&[8.0; 32][..]));
    }

    /// The devices keep the programs that reshard arguments, and both are freed together.
    #[test]
    fn devices_go_with_their_last_handle() {
        if crate::support::xla().is_none() {
            return;
        }
        let devices = XlaDevices::find(Platform::Cpu, 4).unwrap();
        let inner = Arc::downgrade(&devices.0);
        let rows = |axis: &str| {
            let text = format!(
                "{{ lambda ; a:f32[8,4]. let b:f32[8,4] = sharding_constraint[mesh=((x, 4),) spec={axis}] a in (b,) }}"
            );
            devices.compile(&Arc::new(text.parse::<Jaxpr>().unwrap())).unwrap()
        };
        let [from, to] = ["(x,)", "((), x)"].map(rows);
        let ones = Array::full(remat_ir::Literal::from_f64(remat_ir::DType::F32, 1.0), [8, 4]);
        let there = to.execute(from.execute(vec![ones.into()]).unwrap()).unwrap();
        assert_eq!(there[0].host().unwrap().as_slice::<f32>(), Some(&[1.0; 32][..]));
        assert_eq!(devices.resharding().programs(), 1);
        drop((devices, from, to, there));
        assert_eq!(inner.strong_count(), 0);
    }
}
