//! The machines of one worker: scripts of Envoy's dialect that are equal share one.
//!
//! A Rider plugin keeps state in its modules, so each has a machine of its own.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use crate::machine::Machine;
use crate::plugin::Plugin;
use crate::program::{Dialect, Program};
use crate::vm::Fault;

type Entry = (std::sync::Arc<Program>, usize, std::time::Duration, Weak<Machine>);

thread_local! {
    static MACHINES: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
}

/// The machine for a plugin's script: one that runs the same already, or a new one.
///
/// # Errors
/// The script does not load.
pub(crate) fn shared(plugin: &Plugin) -> Result<Rc<Machine>, Fault> {
    let policy = &plugin.facts.policy;
    if plugin.program.dialect == Dialect::Rider {
        return plugin.load().map(Rc::new);
    }
    let known = MACHINES.with_borrow_mut(|machines| {
        machines.retain(|(.., machine)| machine.strong_count() > 0);
        let same = |(program, memory, cpu, _): &&Entry| {
            *program == plugin.program && *memory == policy.memory && *cpu == policy.cpu
        };
        machines.iter().find(same).and_then(|(.., machine)| machine.upgrade())
    });
    if let Some(machine) = known {
        return Ok(machine);
    }
    let machine = Rc::new(plugin.load()?);
    if let Some(block) = plugin.worker.as_ref().and_then(|worker| worker.machines.as_ref()) {
        machine.count_in(block);
    }
    let entry = (plugin.program.clone(), policy.memory, policy.cpu, Rc::downgrade(&machine));
    MACHINES.with_borrow_mut(|machines| machines.push(entry));
    Ok(machine)
}

/// Gives a machine to no further plugin.
pub(crate) fn retire(machine: &Rc<Machine>) {
    MACHINES.with_borrow_mut(|machines| machines.retain(|(.., known)| known.as_ptr() != Rc::as_ptr(machine)));
}
