//! How a worker finds a machine that something came for from another thread.

use std::cell::RefCell;
use std::rc::Weak;

use crate::vm::Vm;

thread_local! {
    /// The machines of this thread that registered queues.
    static MACHINES: RefCell<Vec<(u32, Weak<Vm>)>> = const { RefCell::new(Vec::new()) };
}

/// A number by which this thread finds the machine again; 0 for one that is gone.
pub(crate) fn address(vm: Weak<Vm>) -> u32 {
    let Some(serial) = vm.upgrade().map(|vm| vm.serial) else { return 0 };
    MACHINES.with_borrow_mut(|machines| {
        machines.retain(|(_, vm)| vm.strong_count() > 0);
        if !machines.iter().any(|(known, _)| *known == serial) {
            machines.push((serial, vm));
        }
    });
    serial
}

/// On the machine's thread: something came into a queue of it.
pub(crate) fn ring(address: u32, root: u32, token: u32) {
    let vm = MACHINES
        .with_borrow(|machines| machines.iter().find(|(known, _)| *known == address).and_then(|(_, vm)| vm.upgrade()));
    if let Some(vm) = vm {
        vm.queue_ready(root, token);
    }
}
