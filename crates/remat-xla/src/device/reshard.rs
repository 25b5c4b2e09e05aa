//! Resharding: programs that change how an array is cut, from device to device.
//!
//! A program has two sharding constraints, which XLA turns into exchanges between devices, whatever the two meshes call their axes. It
//! holds no handle of the devices, which keep it.

use std::sync::{Arc, Mutex, PoisonError};

use remat_ir::{Aval, Builder, DeviceArray, Error, ErrorKind, Executable, Result, Sharding, ShardingConstraint, Value};

use super::XlaDevices;
use super::several::{Compiled, Parts, Sharded, whole};

/// The compiled programs, the most recently used first. They hold no handle of the devices, which own them.
#[derive(Default)]
pub(super) struct Resharding(Mutex<Vec<(Reshard, Slot)>>);

/// The slot of a program. It is locked during compilation, since another thread may request the same program; threads with other programs
/// do not wait.
type Slot = Arc<Mutex<Option<Arc<Parts>>>>;

/// The input and the output of a program.
#[derive(Clone, PartialEq)]
struct Reshard {
    aval: Aval,
    from: Sharding,
    to: Sharding,
}

/// The most programs that are kept. A step has one for each shape that is resharded before it.
const MOST: usize = 256;

impl Resharding {
    /// The array cut as the sharding says, without the host; `None` if the two use different devices.
    pub(super) fn resharded(
        &self,
        devices: &XlaDevices,
        array: &Arc<DeviceArray>,
        to: &Sharding,
    ) -> Result<Option<Arc<DeviceArray>>> {
        let Some(sharded) = array.buffer::<Sharded>() else { return Ok(None) };
        let from = match sharded.sharding.mesh.devices() == to.mesh.devices() {
            true => sharded.sharding.clone(),
            // Each device has the whole array, including the first ones, for which the program is.
            false if sharded.is_whole() && sharded.shards.len() > to.mesh.devices() => whole(to.mesh.devices())?,
            false => return Ok(None),
        };
        let parts = self.program(devices, Reshard { aval: array.aval().clone(), from, to: to.clone() })?;
        match Compiled::new(devices.clone(), parts).execute(vec![Value::Device(array.clone())])?.pop() {
            Some(Value::Device(array)) => Ok(Some(array)),
            _ => Err(Error::new(ErrorKind::Internal, "xla", "a program that reshards an array has no result")),
        }
    }

    fn program(&self, devices: &XlaDevices, wanted: Reshard) -> Result<Arc<Parts>> {
        let slot = self.slot(&wanted);
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(parts) = &*slot {
            return Ok(parts.clone());
        }
        let mut b = Builder::new();
        let mut x = b.input(wanted.aval);
        for sharding in [wanted.from, wanted.to] {
            x = b.emit1(ShardingConstraint { sharding: Arc::new(sharding) }.into(), &[x])?;
        }
        Ok(slot.insert(Arc::new(Parts::compile(devices, Arc::new(b.finish(vec![x])), &[])?)).clone())
    }

    fn slot(&self, wanted: &Reshard) -> Slot {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match slots.iter().position(|(known, _)| known == wanted) {
            Some(at) => slots[..=at].rotate_right(1),
            None => {
                slots.truncate(MOST - 1);
                slots.insert(0, (wanted.clone(), Slot::default()));
            }
        }
        slots[0].1.clone()
    }

    /// The number of programs.
    #[cfg(test)]
    pub(super) fn programs(&self) -> usize {
        self.0.lock().unwrap().iter().filter(|(_, slot)| slot.lock().unwrap().is_some()).count()
    }
}

#[cfg(test)]
mod tests {
    use remat_ir::{Array, DType, Device, Element, Jaxpr, Literal, Mesh, PartitionSpec, spec};

    use super::*;
    use crate::Platform;

    fn devices() -> Option<XlaDevices> {
        crate::support::xla().is_some().then(|| XlaDevices::find(Platform::Cpu, 4).unwrap())
    }

    /// A program that requires its argument cut in this way, and returns it.
    fn wants(devices: &XlaDevices, aval: &Aval, sharding: &Sharding) -> Arc<dyn Executable> {
        let mut b = Builder::new();
        let x = b.input(aval.clone());
        let x = b.emit1(ShardingConstraint { sharding: Arc::new(sharding.clone()) }.into(), &[x]).unwrap();
        devices.compile(&Arc::new(b.finish(vec![x]))).unwrap()
    }

    fn expect_equal(value: &Value, expected: &Array) {
        let elements = |x: &Array| (0..x.aval().size()).map(|i| x.data().get(i)).collect::<Vec<_>>();
        let got = value.host().unwrap();
        assert_eq!((got.aval(), elements(got)), (expected.aval(), elements(expected)));
    }

    fn array(value: &Value) -> &Arc<DeviceArray> {
        let Value::Device(array) = value else { panic!("it is on the host") };
        array
    }

    #[test]
    fn arrays_of_every_dtype_are_resharded_between_the_devices() {
        let Some(devices) = devices() else { return };
        let square = Mesh::new([("x", 2), ("y", 2)]).unwrap();
        let line = Mesh::new([("z", 4)]).unwrap();
        let cuts: [(&Mesh, PartitionSpec); 6] = [
            (&square, spec!["x"]),
            (&square, spec!["y", "x"]),
            (&square, spec![None, ["y", "x"]]),
            (&square, spec![]),
            (&line, spec!["z"]),
            (&line, spec![None, "z"]),
        ];
        let cuts = cuts.map(|(mesh, spec)| Sharding::new(mesh, spec));
        for one in DType::ALL.map(|dtype| Literal::from_f64(dtype, 1.0)) {
            let aval = Aval::new(one.dtype(), [8, 4]);
            // Elements that show where they belong. In a single one, no element is zero on every device.
            let whole: Vec<Array> = [0, 13, 31]
                .map(|at| {
                    remat_ir::with_dtype!(one.dtype(), T => {
                        let mut all = vec![T::default(); 32];
                        all[at] = T::from_literal(one).unwrap();
                        Array::from_vec(all, [8, 4]).unwrap()
                    })
                })
                .into();
            // Each cut in turn, and back to the first.
            for (from, to) in cuts.iter().zip(cuts.iter().cycle().skip(1)) {
                let (from, to) = (wants(&devices, &aval, from), wants(&devices, &aval, to));
                for x in &whole {
                    let there = from.execute(vec![x.clone().into()]).unwrap();
                    let back = to.execute(there).unwrap();
                    expect_equal(&back[0], x);
                }
            }
        }
        let Some(last) = devices.resharding().0.lock().unwrap().first().cloned() else {
            panic!("nothing was resharded")
        };
        assert_eq!((last.0.from, last.0.to), (cuts[5].clone(), cuts[0].clone()));
    }

    /// Constants are cut when they are placed, not again in each run.
    #[test]
    fn a_placed_array_is_what_runs_want() {
        let Some(devices) = devices() else { return };
        let mesh = Mesh::new([("x", 2), ("y", 2)]).unwrap();
        let sharding = Sharding::new(&mesh, spec!["x", "y"]);
        let x = Array::full(Literal::from_f64(DType::F32, 2.5), [4, 6]);
        let program = wants(&devices, x.aval(), &sharding);
        for value in [Value::from(x.clone()), devices.put(&x).unwrap()] {
            let placed = program.place(0, value).unwrap();
            assert_eq!(array(&placed).buffer::<Sharded>().unwrap().sharding, sharding);
            let again = program.place(0, placed.clone()).unwrap();
            assert!(Arc::ptr_eq(array(&placed), array(&again)));
            expect_equal(&program.execute(vec![placed]).unwrap()[0], &x);
        }
    }

    /// An array on more devices than the program has is resharded if each of them has all of it; otherwise it goes through the host.
    #[test]
    fn arrays_of_other_meshes_come_too() {
        let Some(devices) = devices() else { return };
        let x = Array::from_vec((0..8).map(|i| i as f32).collect(), [8]).unwrap();
        let [two, four] = [2, 4].map(|n| Sharding::new(&Mesh::new([("x", n)]).unwrap(), spec!["x"]));
        let [of_two, of_four] = [&two, &four].map(|sharding| wants(&devices, x.aval(), sharding));
        let whole = devices.put(&x).unwrap();
        let resharded = devices.resharding().resharded(&devices, array(&whole), &two).unwrap();
        expect_equal(&Value::Device(resharded.unwrap()), &x);
        let cut = of_four.execute(vec![x.clone().into()]).unwrap();
        assert!(devices.resharding().resharded(&devices, array(&cut[0]), &two).unwrap().is_none());
        expect_equal(&of_two.execute(cut).unwrap()[0], &x);
        let jaxpr: Jaxpr = "{ lambda ; a:f32[8]. let b:f32[8] = mul a 2.0:f32[] in (b,) }".parse().unwrap();
        let cut = of_four.execute(vec![x.clone().into()]).unwrap();
        let doubled = devices.compile(&Arc::new(jaxpr)).unwrap().execute(cut).unwrap();
        assert_eq!(doubled[0].host().unwrap().as_slice::<f32>().unwrap()[7], 14.0);
    }
}
