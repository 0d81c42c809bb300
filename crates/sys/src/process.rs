//! The process: limits, processors, memory, the service manager.

use std::io;

/// Raises the soft limit of open files to the hard one and answers what it is then.
///
/// # Errors
/// The system refuses.
pub fn raise_file_limit() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit for both calls to read and write.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) != 0 {
            return Err(io::Error::last_os_error());
        }
        limit.rlim_cur = limit.rlim_max;
        if libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(limit.rlim_cur)
}

/// How many files this process may have open, and how many it has; `None` where the system does not tell.
pub fn open_files() -> Option<(u64, u64)> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit for the call to fill.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return None;
    }
    // Since Linux 6.2 the directory's size says it; before that, somebody has to count.
    let open = match std::fs::metadata("/proc/self/fd").ok()?.len() {
        0 => std::fs::read_dir("/proc/self/fd").ok()?.count() as u64,
        open => open,
    };
    Some((limit.rlim_cur, open))
}

/// Bytes of a page of memory.
pub fn page_size() -> u64 {
    // SAFETY: sysconf only answers a number.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(4096)
}

/// How many threads can run at once: the processors that this process may use, capped by the control group's share.
pub fn processor_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Keeps the calling thread on one of the processors that the process may use: the `index`-th, counted round.
///
/// # Errors
/// The system refuses, or forbids to ask.
pub fn pin_to_cpu(index: usize) -> io::Result<()> {
    // SAFETY: both sets are plain data of the size that is passed, valid for the calls; CPU_ISSET and CPU_SET stay
    // within CPU_SETSIZE.
    unsafe {
        let mut allowed: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut allowed) != 0 {
            return Err(io::Error::last_os_error());
        }
        let cpus: Vec<usize> = (0..libc::CPU_SETSIZE as usize).filter(|cpu| libc::CPU_ISSET(*cpu, &allowed)).collect();
        let Some(cpu) = cpus.get(index % cpus.len().max(1)) else { return Ok(()) };
        let mut wanted: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(*cpu, &mut wanted);
        if libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const wanted) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Gives memory that the allocators of this thread, and of C libraries, hold but nobody uses back to the system; worth it
/// after a configuration was read.
pub fn release_free_memory() {
    // SAFETY: it only touches the calling thread's own heap and what ended threads left.
    unsafe {
        libmimalloc_sys::mi_collect(true);
    }
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim only touches the allocator's own state and is thread-safe.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Memory that the allocator has from the system, used or not, in bytes.
pub fn heap_size() -> u64 {
    let mut committed = 0;
    let none = std::ptr::null_mut;
    // SAFETY: it writes the one number that it is given room for, and nothing where it is given none.
    unsafe {
        libmimalloc_sys::mi_process_info(none(), none(), none(), none(), none(), &raw mut committed, none(), none());
    }
    committed as u64
}

/// `mi_option_purge_delay`, which the bindings leave out: for how many milliseconds a free page is kept.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// Has the allocator keep free pages for so many milliseconds before it gives them back to the system, unless
/// `MIMALLOC_PURGE_DELAY` says something else.
pub fn keep_free_memory(milliseconds: u16) {
    // SAFETY: it sets one number of the allocator's, which any thread may read and write at any time.
    unsafe {
        libmimalloc_sys::mi_option_set_default(PURGE_DELAY, milliseconds.into());
    }
}

/// Gives back what the calling thread's allocator has held for long enough without a use for it. Takes microseconds.
pub fn release_expired_memory() {
    // SAFETY: it only touches the calling thread's own heap, and pages that nobody uses.
    unsafe {
        libmimalloc_sys::mi_collect(false);
    }
}

/// Lets go of the pages of the program's own file that are in memory. Reading a configuration touches most of them, and
/// serving few, which come back from the page cache when they are next used.
pub fn release_program_pages() {
    // SAFETY: the callback has the type that is asked for, and no data.
    unsafe {
        libc::dl_iterate_phdr(Some(release_segments), std::ptr::null_mut());
    }
}

/// For the first object, which is the program, and for no other: a number other than 0 ends the walk.
unsafe extern "C" fn release_segments(object: *mut libc::dl_phdr_info, _: usize, _: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the loader passes a valid object, with so many headers, which stay for the call.
    let (base, segments) = unsafe {
        let object = &*object;
        (object.dlpi_addr, std::slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum)))
    };
    for segment in segments {
        // What may be written to, or was when the program was linked, differs from the file.
        if segment.p_type != libc::PT_LOAD || segment.p_flags & libc::PF_W != 0 {
            continue;
        }
        let start = (base + segment.p_vaddr).next_multiple_of(page_size());
        let end = (base + segment.p_vaddr + segment.p_memsz) / page_size() * page_size();
        if end > start {
            // SAFETY: whole pages of a mapping of a file that nobody can have written to: the file has the same.
            unsafe {
                libc::madvise(start as *mut libc::c_void, (end - start) as usize, libc::MADV_DONTNEED);
            }
        }
    }
    1
}

/// Tells systemd about a change of state (`READY=1`, `RELOADING=1`, `STOPPING=1`), if it listens: the protocol of
/// `sd_notify(3)`. Without `NOTIFY_SOCKET` in the environment nothing happens.
///
/// # Errors
/// The socket that was named does not take the message.
pub fn notify_service_manager(state: &str) -> io::Result<()> {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    let socket = UnixDatagram::unbound()?;
    let text = path.to_string_lossy();
    let address = match text.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(&path)?,
    };
    socket.send_to_addr(state.as_bytes(), &address).map(drop)
}

/// What the kernel calls this thread.
pub fn thread_id() -> u32 {
    // SAFETY: the call takes nothing and cannot fail.
    let id = unsafe { libc::gettid() };
    id.unsigned_abs()
}

/// Nanoseconds of the monotonic clock, as systemd counts them too.
#[inline]
pub fn monotonic_nanos() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec for the call to fill.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_runs_on_without_its_pages() {
        let resident = || {
            let text = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = text.lines().find(|line| line.starts_with("RssFile:")).unwrap();
            line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
        };
        read_whole_program();
        let before = resident();
        release_program_pages();
        let after = resident();
        assert!(after < before, "{before} KiB, {after} KiB");
    }

    /// Has every page in memory: other tests run beside and bring some of theirs in at any time.
    fn read_whole_program() {
        let program = std::env::current_exe().unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        for line in maps.lines().filter(|line| line.ends_with(program.to_str().unwrap())) {
            let (range, rest) = line.split_once(' ').unwrap();
            let (start, end) = range.split_once('-').unwrap();
            let address = |text| usize::from_str_radix(text, 16).unwrap();
            if rest.starts_with("r-") {
                for page in (address(start)..address(end)).step_by(4096) {
                    // SAFETY: a page of a mapping that may be read and that nobody takes away.
                    unsafe { (page as *const u8).read_volatile() };
                }
            }
        }
    }

    #[test]
    fn the_file_limit_is_positive_after_raising() {
        assert!(raise_file_limit().unwrap() > 0);
    }

    #[test]
    fn files_that_are_opened_are_counted() {
        let (limit, before) = open_files().unwrap();
        let files: Vec<_> = (0..20).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
        let (_, after) = open_files().unwrap();
        drop(files);
        assert!(after >= before + 10 && after < limit, "{before} {after} {limit}");
    }

    #[test]
    fn a_thread_can_be_pinned_to_any_index() {
        std::thread::spawn(|| pin_to_cpu(7)).join().unwrap().unwrap();
    }
}
