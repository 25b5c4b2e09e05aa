use std::net::TcpListener;
use std::ptr::null_mut;
use std::sync::Mutex;

use remat_cluster::{ClusterConfig, Node};

use super::super::client::Client;
use super::super::library::Library;
use super::super::sys::Arguments;
use super::*;

/// Two nodes of one cluster. The node of rank 0 is dropped last, since it waits for the other.
fn nodes() -> [Node; 2] {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let other = ClusterConfig::new(address.clone(), 1, 2);
    let other = std::thread::spawn(move || Node::join(&other).unwrap());
    let node = Node::join(&ClusterConfig::new(address, 0, 2)).unwrap();
    [node, other.join().unwrap()]
}

/// The error of a test: its code and text, boxed.
unsafe extern "C" fn boxed(code: c_int, message: *const c_char, size: usize) -> Handle {
    // SAFETY: the callbacks pass a text of this length.
    let message = unsafe { super::super::library::text(message, size) };
    Box::into_raw(Box::new((code, message))).cast()
}

const ERROR: CallbackError = boxed;

fn unboxed(error: Handle) -> Option<(c_int, String)> {
    // SAFETY: errors of these tests are boxed by `boxed`.
    (!error.is_null()).then(|| *unsafe { Box::from_raw(error.cast::<(c_int, String)>()) })
}

/// Uses the callbacks in the arguments of a client as a plugin does.
#[derive(Clone, Copy)]
struct Plugin<'a>(&'a sys::ClientCreate);

impl Plugin<'_> {
    fn put(self, key: &[u8], value: &[u8]) -> Option<(c_int, String)> {
        // SAFETY: the callback is `put`.
        let put: unsafe extern "C" fn(*mut Put) -> Handle = unsafe { std::mem::transmute(self.0.kv_put_callback) };
        let mut args = Put {
            struct_size: size_of::<Put>(),
            extension_start: null_mut(),
            key: key.as_ptr().cast(),
            key_size: key.len(),
            value: value.as_ptr().cast(),
            value_size: value.len(),
            callback_error: &ERROR,
            user_arg: self.0.kv_put_user_arg,
        };
        // SAFETY: the arguments are those of the header.
        unboxed(unsafe { put(&mut args) })
    }

    fn get(self, key: &[u8], timeout_in_ms: c_int) -> Result<Vec<u8>, (c_int, String)> {
        // SAFETY: the callback is `get`.
        let get: unsafe extern "C" fn(*mut Get) -> Handle = unsafe { std::mem::transmute(self.0.kv_get_callback) };
        let mut args = Get {
            struct_size: size_of::<Get>(),
            extension_start: null_mut(),
            key: key.as_ptr().cast(),
            key_size: key.len(),
            timeout_in_ms,
            callback_error: &ERROR,
            user_arg: self.0.kv_get_user_arg,
            value: null_mut(),
            value_size: 0,
            value_deleter_callback: None,
        };
        // SAFETY: the arguments are those of the header.
        let error = unsafe { get(&mut args) };
        taken(error, args.value, args.value_size, args.value_deleter_callback)
    }

    fn try_get(self, key: &[u8]) -> Result<Vec<u8>, (c_int, String)> {
        // SAFETY: the callback is `try_get`.
        let get: unsafe extern "C" fn(*mut TryGet) -> Handle =
            unsafe { std::mem::transmute(self.0.kv_try_get_callback) };
        let mut args = TryGet {
            struct_size: size_of::<TryGet>(),
            extension_start: null_mut(),
            key: key.as_ptr().cast(),
            key_size: key.len(),
            callback_error: &ERROR,
            user_arg: self.0.kv_try_get_user_arg,
            value: null_mut(),
            value_size: 0,
            value_deleter_callback: None,
        };
        // SAFETY: the arguments are those of the header.
        let error = unsafe { get(&mut args) };
        taken(error, args.value, args.value_size, args.value_deleter_callback)
    }
}

/// The value, which is copied and freed, as plugins do.
fn taken(error: Handle, value: *mut c_char, size: usize, deleter: Option<Deleter>) -> Result<Vec<u8>, (c_int, String)> {
    if let Some(error) = unboxed(error) {
        assert!(value.is_null());
        return Err(error);
    }
    assert!(!value.is_null());
    // SAFETY: the callback returned a value of this size, and the function that frees it.
    unsafe {
        let copy = slice(value.cast::<u8>(), size).to_vec();
        deleter.unwrap()(value);
        Ok(copy)
    }
}

#[test]
fn structs_have_the_sizes_of_the_header() {
    assert_eq!([size_of::<Get>(), size_of::<TryGet>(), size_of::<Put>()], [80, 72, 64]);
}

#[test]
fn nodes_exchange_values_by_the_callbacks() {
    let nodes = nodes();
    let callbacks = nodes.each_ref().map(|node| Callbacks::new(node.store().unwrap().clone()));
    let args = callbacks.each_ref().map(|callbacks| {
        let mut args = sys::ClientCreate::new();
        callbacks.give(&mut args);
        args
    });
    let [zero, one] = args.each_ref().map(Plugin);
    let binary: Vec<u8> = (0..=255).chain([0]).collect();
    assert_eq!(
        one.try_get(b"topology/0\0"),
        Err((NOT_FOUND, "the key `topology/0\\x00` has no value yet".to_string()))
    );
    let late = "no node has given the key `topology/0\\x00` a value in time".to_string();
    assert_eq!(one.get(b"topology/0\0", 20), Err((DEADLINE_EXCEEDED, late.clone())));
    assert_eq!(one.get(b"topology/0\0", -1), Err((DEADLINE_EXCEEDED, late)));
    assert_eq!(zero.put(b"topology/0\0", &binary), None);
    assert_eq!(one.get(b"topology/0\0", 60_000), Ok(binary.clone()));
    assert_eq!(one.try_get(b"topology/0\0"), Ok(binary));
    assert_eq!(one.put(b"", b""), None);
    assert_eq!(zero.try_get(b""), Ok(vec![]));
    let (code, message) = one.put(b"topology/0\0", b"other").unwrap();
    assert_eq!((code, message.as_str()), (UNAVAILABLE, "cluster: the key `topology/0\0` has another value already"));
    // Callbacks outlive the node; they then return an error instead of hanging.
    let [first, second] = nodes;
    drop(second);
    drop(first);
    let (code, message) = zero.try_get(b"").unwrap_err();
    assert!(code == UNAVAILABLE && message.starts_with("cluster: the coordinator at 127.0.0.1:"), "{message}");
}

/// The observations of a test double of a plugin: its options, and the results of callbacks while it created a client.
static SEEN: Mutex<Vec<(Vec<(String, i64)>, Vec<u8>)>> = Mutex::new(Vec::new());

/// `PJRT_Client_Create` of a plugin that exchanges node numbers with the other node, as that of CUDA exchanges its devices.
unsafe extern "C" fn create(args: *mut sys::ClientCreate) -> Handle {
    // SAFETY: the library calls this with its arguments.
    let args = unsafe { &mut *args };
    // SAFETY: the options live during the call.
    let options = unsafe { slice(args.create_options, args.num_options) };
    // SAFETY: the first two options of a node are integers with names.
    let parts = |option: &sys::NamedValue| unsafe {
        (super::super::library::text(option.name, option.name_size), option.value.int64)
    };
    let options: Vec<(String, i64)> = options[..2].iter().map(parts).collect();
    let node = options[0].1;
    let plugin = Plugin(args);
    assert_eq!(plugin.put(format!("node{node}").as_bytes(), &[node as u8]), None);
    let other = plugin.get(format!("node{}", 1 - node).as_bytes(), 60_000).unwrap();
    SEEN.lock().unwrap().push((options, other));
    args.client = std::ptr::NonNull::<u8>::dangling().as_ptr().cast();
    null_mut()
}

unsafe extern "C" fn nothing(_: *mut c_void) -> Handle {
    null_mut()
}

#[test]
fn a_client_of_a_node_has_the_callbacks_while_it_lives() {
    let functions = [
        (sys::ClientCreate::INDEX, create as *mut c_void),
        (sys::ClientDestroy::INDEX, nothing as *mut c_void),
        (sys::ClientAddressableDevices::INDEX, nothing as *mut c_void),
    ];
    let library = Library::of_functions(&functions);
    let [zero, one] = nodes();
    let clients = std::thread::scope(|scope| {
        let making =
            [&zero, &one].map(|node| scope.spawn(|| Client::of_node(library, node.store().unwrap().clone(), 0.5)));
        making.map(|client| client.join().unwrap().unwrap())
    });
    assert_eq!(std::sync::Arc::strong_count(zero.store().unwrap()), 2);
    drop(clients);
    assert_eq!(std::sync::Arc::strong_count(zero.store().unwrap()), 1);
    let mut seen = std::mem::take(&mut *SEEN.lock().unwrap());
    seen.sort();
    let options = |node| vec![("node_id".to_string(), node), ("num_nodes".to_string(), 2)];
    assert_eq!(seen, [(options(0), vec![1]), (options(1), vec![0])]);
}

/// It would accept the callbacks and call none of them, so each process would be alone.
#[test]
fn the_plugin_for_cpus_is_not_joined() {
    let Ok(plugin) = crate::Plugin::find(crate::Platform::Cpu) else { return };
    let [zero, _one] = nodes();
    let error = crate::Xla::join(&plugin, zero.store().unwrap()).unwrap_err();
    let expected = "xla: the plugin for CPUs works in one process only; on several hosts with CPUs sum gradients between steps, by \
                    remat::cluster";
    assert_eq!(error.to_string(), expected);
}
