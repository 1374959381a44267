//! The modules of a device. A helper thread loads them.

use std::sync::Arc;

use cuda_core::{
    DeviceInfo, Error, FunctionAttributes, LaunchConfig, Occupancy, Result,
    internals::IdMap,
    protocol::{Answer, ModuleId, ModuleImage, Reply, entries},
};
use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;

use super::lost::contained;
use crate::{LaunchDims, MAX_CLUSTER_BLOCKS, Memory, Program, launch::count_in};

/// A loaded program. Its variables are freed when it is dropped: at the unload, or after the last launch in flight.
pub(crate) struct LoadedModule {
    program: Program,
    memory: Arc<Memory>,
    /// For each entry of the protocol, in the order of the text, the index in the program.
    entries: Vec<usize>,
}

impl LoadedModule {
    /// Parses and decodes a PTX text.
    fn load(image: &ModuleImage, memory: &Arc<Memory>) -> Result<Self> {
        let ModuleImage::Ptx(text) = image else {
            let log = "the image is machine code of NVIDIA GPUs; load the PTX of its kernels with `load_ptx`";
            return Err(Error::LoadFailed { log: log.into() });
        };
        let invalid = |error: cuda_ptx::Error| Error::InvalidPtx { detail: error.to_string() };
        let module = cuda_ptx::parse(text).map_err(invalid)?;
        let loaded = Program::load(&module, memory);
        let program = loaded.map_err(|error| Error::LoadFailed { log: error.to_string() })?;
        let names = program.entries().iter().map(|entry| entry.name.as_str());
        let places: FxHashMap<&str, usize> = names.zip(0..).collect();
        let place = |name: &str| places.get(name).copied().unwrap_or(usize::MAX);
        let entries = entries(text)?.iter().map(|entry| place(&entry.name)).collect();
        Ok(Self { entries, program, memory: memory.clone() })
    }

    pub(crate) fn program(&self) -> &Program {
        &self.program
    }

    /// Returns the index in the program of an entry of the protocol.
    pub(crate) fn entry(&self, entry: u32) -> Result<usize> {
        let found = self.entries.get(entry as usize).copied();
        found
            .filter(|at| *at != usize::MAX)
            .ok_or_else(|| Error::no_such_object("kernel", entry.into()))
    }

    /// Answers a question on occupancy: the limits of compute capability 9.0, for each thread of the device.
    pub(crate) fn occupancy(
        &self,
        entry: u32,
        config: &LaunchConfig,
        info: &DeviceInfo,
    ) -> Result<Occupancy> {
        let entry = self.entry(entry)?;
        let LaunchConfig { grid, block, shared_bytes: dynamic_shared, .. } = *config;
        let found = self.program.resources(entry, LaunchDims { grid, block, dynamic_shared });
        let found = found.zip(self.program.entries().get(entry));
        let (resources, kernel) =
            found.ok_or_else(|| Error::no_such_object("kernel", entry as u64))?;
        let threads = |dims| count_in(dims).min(info.max_threads_per_block.into()).max(1) as u32;
        let declared = kernel.max_threads.or(kernel.required_threads);
        let max_threads = declared.map_or(info.max_threads_per_block, threads);
        let suggested_block = match kernel.required_threads {
            Some(required) => threads(required),
            None => max_threads.min(LaunchConfig::DEFAULT_BLOCK),
        };
        Ok(Occupancy {
            blocks_per_multiprocessor: resources.blocks,
            max_cooperative_blocks: resources.blocks.saturating_mul(info.multiprocessors),
            max_cluster_blocks: MAX_CLUSTER_BLOCKS,
            suggested_block,
            kernel: FunctionAttributes {
                registers: resources.registers,
                local_bytes: resources.local_bytes,
                static_shared_bytes: kernel.static_shared,
                max_threads,
            },
        })
    }
}

impl Drop for LoadedModule {
    fn drop(&mut self) {
        self.program.free_variables(&self.memory);
    }
}

/// The modules of a device.
#[derive(Default)]
pub(crate) struct Modules {
    table: Mutex<IdMap<ModuleId, State>>,
    loaded: Condvar,
    /// The requests for modules that were unloaded during their load. The end of a load answers them: the thread that unloads
    /// may hold locks of the client. Filled under the lock of the table.
    unloaded: Mutex<Vec<(ModuleId, Answer)>>,
}

enum State {
    /// A helper thread loads the module. It answers these requests afterwards.
    Loading(Vec<Answer>),
    Loaded(Arc<LoadedModule>),
    Failed(Error),
}

impl Modules {
    /// Adds a module that will be loaded.
    pub(crate) fn announce(&self, id: ModuleId) {
        self.table.lock().insert(id, State::Loading(Vec::new()));
    }

    /// Loads an announced module, and answers the waiting requests. A panic of the load becomes its error; variables
    /// that were allocated before it are not freed.
    pub(crate) fn load(&self, id: ModuleId, image: &ModuleImage, memory: &Arc<Memory>, most: u32) {
        self.load_with(id, || LoadedModule::load(image, memory), most);
    }

    fn load_with(&self, id: ModuleId, load: impl FnOnce() -> Result<LoadedModule>, most: u32) {
        // Without an end of the load, `find` would block forever.
        let loaded = contained(load).unwrap_or_else(|panicked| {
            let log = format!("the CPU device panicked while it loaded the module: {}", panicked.0);
            Err(Error::LoadFailed { log })
        });
        let (state, reply) = match loaded {
            Ok(module) => {
                let reply = Ok(reply(&module, most));
                (State::Loaded(Arc::new(module)), reply)
            }
            Err(error) => (State::Failed(error.clone()), Err(error)),
        };
        let mut table = self.table.lock();
        // The entry is missing if the module was unloaded during the load.
        let before = table.get_mut(&id).map(|known| std::mem::replace(known, state));
        drop(table);
        self.loaded.notify_all();
        let unloaded = std::mem::take(&mut *self.unloaded.lock());
        for (id, answer) in unloaded {
            let reply = Err(Error::no_such_object("module", id.0));
            _ = contained(|| answer.give(reply));
        }
        if let Some(State::Loading(answers)) = before {
            for answer in answers {
                // Runs code of the client. A panic in it must not keep the others from their answers.
                _ = contained(|| answer.give(reply.clone()));
            }
        }
    }

    /// Answers when the module is loaded.
    pub(crate) fn when_loaded(&self, id: ModuleId, answer: Answer, most: u32) {
        let mut table = self.table.lock();
        let reply = match table.get_mut(&id) {
            Some(State::Loading(answers)) => return answers.push(answer),
            Some(State::Loaded(module)) => Ok(reply(module, most)),
            Some(State::Failed(error)) => Err(error.clone()),
            None => Err(Error::no_such_object("module", id.0)),
        };
        drop(table);
        answer.give(reply);
    }

    /// Returns a module. Blocks while the module is being loaded. To avoid that, a client waits for
    /// [`Reply::Loaded`] before it submits launches of the module.
    pub(crate) fn find(&self, id: ModuleId) -> Result<Arc<LoadedModule>> {
        let mut table = self.table.lock();
        loop {
            match table.get(&id) {
                Some(State::Loaded(module)) => return Ok(module.clone()),
                Some(State::Failed(error)) => return Err(error.clone()),
                Some(State::Loading(_)) => self.loaded.wait(&mut table),
                None => return Err(Error::no_such_object("module", id.0)),
            }
        }
    }

    /// Returns a module that is loaded. Never blocks.
    pub(crate) fn find_loaded(&self, id: ModuleId) -> Result<Arc<LoadedModule>> {
        match self.table.lock().get(&id) {
            Some(State::Loaded(module)) => Ok(module.clone()),
            Some(State::Failed(error)) => Err(error.clone()),
            Some(State::Loading(_)) | None => Err(Error::no_such_object("loaded module", id.0)),
        }
    }

    /// Removes a module. It is dropped here, or with its last launch in flight.
    pub(crate) fn unload(&self, id: ModuleId) {
        let mut table = self.table.lock();
        match table.remove(&id) {
            Some(State::Loading(answers)) => {
                self.unloaded.lock().extend(answers.into_iter().map(|answer| (id, answer)));
                drop(table);
            }
            removed => {
                drop(table);
                drop(removed);
            }
        }
        self.loaded.notify_all();
    }
}

fn reply(module: &LoadedModule, most: u32) -> Reply {
    let max_threads = vec![most; module.entries.len()];
    Reply::Loaded { max_threads, log: String::new(), entries: Vec::new() }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn request_for_a_module_that_is_unloaded_during_its_load_has_an_answer() {
        let (modules, id) = (Modules::default(), ModuleId(1));
        modules.announce(id);
        let (send, replies) = channel();
        modules.when_loaded(id, Answer::new(move |reply| _ = send.send(reply)), 1024);
        modules.unload(id);
        modules.load_with(id, || Err(Error::AlreadyEnded), 1024);
        assert_eq!(replies.try_recv(), Ok(Err(Error::no_such_object("module", 1))));
    }

    #[test]
    fn panic_while_loading_fails_the_module() {
        let (modules, id) = (Modules::default(), ModuleId(1));
        modules.announce(id);
        let (send, replies) = channel();
        modules.when_loaded(id, Answer::new(|_| panic!("a waker that panics")), 1024);
        modules.when_loaded(id, Answer::new(move |reply| _ = send.send(reply)), 1024);
        modules.load_with(id, || panic!("on purpose"), 1024);
        let error = replies.try_recv().unwrap().unwrap_err();
        assert!(matches!(&error, Error::LoadFailed { log } if log.ends_with("on purpose")));
        assert_eq!(modules.find(id).err(), Some(error));
    }
}
