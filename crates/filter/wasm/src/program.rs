//! What runs, as its configuration says: the same on every worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use postrider_filter_api::plugin::Facts;
use sha2::{Digest, Sha256};
use wasmtime::InstancePre;

use crate::abi;
use crate::analysis::{Abi, Analysis};
use crate::compiled::{Compiled, compiled};
use crate::data::Data;
use crate::shared::Space;

/// Code with everything that makes one virtual machine another.
pub(crate) struct Program {
    /// Equal keys share a machine on each worker.
    pub(crate) key: [u8; 32],
    pub(crate) vm_id: String,
    pub(crate) configuration: Vec<u8>,
    pub(crate) environment: Vec<(String, String)>,
    /// What the module may call and be called by; `None` is everything.
    pub(crate) capabilities: Option<Vec<String>>,
    /// Bytes of memory, per worker.
    pub(crate) memory: usize,
    /// CPU time of one call.
    pub(crate) cpu: Duration,
    pub(crate) analysis: Arc<Analysis>,
    pub(crate) pre: InstancePre<Data>,
    /// What machines of the same `vm_id` share.
    pub(crate) space: Arc<Space>,
    /// See [`Compiled::outdated`].
    outdated: Option<Arc<AtomicBool>>,
}

/// A plugin with one configuration: what a root context stands for.
pub(crate) struct Plugin {
    /// Distinct for each that was read.
    pub(crate) id: u64,
    pub(crate) program: Arc<Program>,
    pub(crate) facts: Arc<Facts>,
    pub(crate) root_id: String,
    pub(crate) configuration: Vec<u8>,
    pub(crate) failure: Failure,
    /// A head that the module stops stays while its body is shown to the module; otherwise everything stops.
    pub(crate) stops_heads_alone: bool,
    /// `phases` of a manifest: the only hooks that are called; none means all.
    pub(crate) phases: Vec<String>,
}

/// What becomes of streams when the machine is gone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Failure {
    /// They are answered with 503.
    Closed,
    /// They pass by; the one that met the failure is answered with 503, unless `spares` lets it pass, too.
    Open { spares: bool },
    /// The machine is made again so much time after it was last made, which doubles with each failure up to the second;
    /// until then as [`Failure::Closed`].
    Reload(Duration, Duration),
    /// The rules of the plugin model: see [`postrider_filter_api::plugin::Policy`].
    Policy,
}

impl Failure {
    /// Envoy's words for it, and what they mean; `None` where the plugin model's rules hold.
    pub(crate) fn note(self) -> Option<&'static str> {
        match self {
            Failure::Closed => Some("FAIL_CLOSED: where its machine failed, requests get 503"),
            Failure::Open { .. } => Some("FAIL_OPEN: where its machine failed, requests pass it by"),
            Failure::Reload(..) => {
                Some("FAIL_RELOAD: where its machine failed, it is made again, and requests get 503 until then")
            }
            Failure::Policy => None,
        }
    }

    /// What follows on the worker whose machine failed.
    pub(crate) fn consequence(self) -> String {
        match self {
            Failure::Closed => {
                "by FAIL_CLOSED, this worker answers its requests with 503 until the configuration changes".to_owned()
            }
            Failure::Open { .. } => {
                "by FAIL_OPEN, requests of this worker pass it by until the configuration changes".to_owned()
            }
            Failure::Reload(base, _) => {
                format!("by FAIL_RELOAD, it is started again after {base:?} or more, and requests get 503 until then")
            }
            Failure::Policy => "it is started again with the next request".to_owned(),
        }
    }
}

/// What a program is made from.
pub(crate) struct Source<'a> {
    pub(crate) code: &'a [u8],
    pub(crate) vm_id: &'a str,
    pub(crate) configuration: Vec<u8>,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) capabilities: Option<Vec<String>>,
    pub(crate) memory: usize,
    pub(crate) cpu: Duration,
}

impl Program {
    /// Compiles the code, unless it is compiled already, and looks up what it imports.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn new(source: Source<'_>) -> Result<Program, String> {
        let digest = Sha256::digest(source.code).into();
        let Compiled { module, analysis, outdated } = compiled(source.code, digest)?;
        let pre = abi::link(&module, analysis.abi, source.capabilities.as_deref())?;
        if module.get_export("memory").and_then(|export| export.memory().map(|_| ())).is_none() {
            return Err("the module exports no memory named `memory`".to_owned());
        }
        if !analysis.exports("malloc") && !analysis.exports("proxy_on_memory_allocate") {
            return Err(
                "the module exports neither `malloc` nor `proxy_on_memory_allocate`: it could be given nothing"
                    .to_owned(),
            );
        }
        Ok(Program {
            key: key(&source, &digest),
            vm_id: source.vm_id.to_owned(),
            configuration: source.configuration,
            environment: source.environment,
            capabilities: source.capabilities,
            memory: source.memory,
            cpu: source.cpu,
            analysis,
            pre,
            space: Space::of(source.vm_id),
            outdated,
        })
    }

    /// Whether a callback is there, may be called, and may do something other than return `nothing`.
    pub(crate) fn acts(&self, name: &str, nothing: i32) -> bool {
        self.may(name) && self.analysis.acts(name, nothing)
    }

    /// Whether the capability is given.
    pub(crate) fn may(&self, name: &str) -> bool {
        self.capabilities.as_ref().is_none_or(|given| given.iter().any(|known| known == name))
    }

    /// Whether the code was compiled well, and not quickly for the start.
    fn is_optimized(&self) -> bool {
        self.outdated.is_none()
    }

    /// What the admin tells of the code for the time being.
    pub(crate) fn note(&self) -> Option<&'static str> {
        (!self.is_optimized()).then_some("compiled quickly; it is replaced when it was compiled well")
    }

    /// Whether there is no better code for the module by now.
    pub(crate) fn is_current(&self) -> bool {
        self.outdated.as_ref().is_none_or(|outdated| !outdated.load(Ordering::Relaxed))
    }

    pub(crate) fn abi(&self) -> Abi {
        self.analysis.abi
    }
}

fn key(source: &Source<'_>, digest: &[u8; 32]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hasher.update((bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    part(source.vm_id.as_bytes());
    part(&source.configuration);
    part(digest);
    // Beyond what Envoy's key has: machines that differ in these are not the same.
    part(format!("{:?}{:?}", source.environment, source.capabilities).as_bytes());
    part(format!("{} {:?}", source.memory, source.cpu).as_bytes());
    hasher.finalize().into()
}
