//! Powers of two for scripts, at the cost of an addition.
//!
//! Lua has no shifts, so scripts that take numbers to pieces say `2 ^ i`. LuaJIT leaves every power to the C library's
//! `pow`, which takes a hundred instructions for it. The function of that name here is the whole program's: what it does
//! not know at once it leaves to the library's, so the results are the same, bit by bit.

use std::ffi::{CStr, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::vm::Fault;

/// What an exponent of zero stands as in a double, and where (IEEE 754-2019, section 3.4).
const BIAS: i32 = 1023;
const FRACTION_BITS: u32 = 52;

/// The least exponent of a normal number, and how many there are from there on.
const LEAST: i32 = 1 - BIAS;
const NORMAL: u32 = 2 * BIAS as u32;

const NAME: &CStr = c"pow";

type Pow = extern "C" fn(f64, f64) -> f64;

/// The C library's function, once [`prepare`] looked for it.
static LIBRARY: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// `pow` of C99 (7.12.7.4).
// SAFETY: it has the type and the meaning of the C library's function, whose place it takes.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pow(base: f64, exponent: f64) -> f64 {
    let whole = truncated(exponent);
    // What is too small wraps round to what is too large.
    let place = whole.wrapping_sub(LEAST) as u32;
    if base == 2.0 && place < NORMAL && f64::from(whole) == exponent {
        return f64::from_bits(u64::from(place + 1) << FRACTION_BITS);
    }
    by_library(base, exponent)
}

/// The exponent without its fraction, where that is an `i32`; some other number elsewhere. Rust's own conversion finds the next best
/// number there, which takes longer than all the rest.
#[cfg(target_arch = "x86_64")]
#[inline]
fn truncated(exponent: f64) -> i32 {
    use std::arch::x86_64::{_mm_cvttsd_si32, _mm_set_sd};
    // SAFETY: each processor of this kind has SSE2.
    unsafe { _mm_cvttsd_si32(_mm_set_sd(exponent)) }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn truncated(exponent: f64) -> i32 {
    exponent as i32
}

fn by_library(base: f64, exponent: f64) -> f64 {
    // SAFETY: it is what the C library calls `pow`, or null, which is none of these.
    let library = unsafe { mem::transmute::<*mut c_void, Option<Pow>>(library()) };
    library.map_or(f64::NAN, |pow| pow(base, exponent))
}

/// Looks for the C library's function, so that no script has to.
///
/// # Errors
/// It has none, as where the program is linked with it statically: no script could raise a number to a power.
pub(crate) fn prepare() -> Result<(), Fault> {
    found(library())
}

fn found(function: *mut c_void) -> Result<(), Fault> {
    match function.is_null() {
        true => Err(Fault::Error("the C library of this system has no function `pow`, which LuaJIT needs".to_owned())),
        false => Ok(()),
    }
}

fn library() -> *mut c_void {
    let known = LIBRARY.load(Ordering::Relaxed);
    if known.is_null() { find() } else { known }
}

#[cold]
fn find() -> *mut c_void {
    // SAFETY: a name that ends with a zero; the symbol behind this program's own is looked for.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, NAME.as_ptr()) };
    LIBRARY.store(found, Ordering::Relaxed);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_are_those_of_the_library() {
        let numbers = [0.0, -0.0, 0.5, 1.0, 2.0, -2.0, 3.7, 10.0, 1e300, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
        let far = [
            0.5,
            -0.5,
            1e10,
            -1e10,
            2_147_483_647.0,
            2_147_483_648.0,
            -2_147_483_648.0,
            -2_147_483_649.0,
            4_294_967_296.0,
        ];
        let exponents = (-1100..=1100).map(f64::from).chain(numbers).chain(far).chain([f64::MIN_POSITIVE, -1e300]);
        for exponent in exponents {
            for base in numbers {
                let (ours, theirs) = (pow(base, exponent), by_library(base, exponent));
                assert_eq!(ours.to_bits(), theirs.to_bits(), "{base} ^ {exponent}");
            }
        }
    }

    #[test]
    fn a_library_without_the_function_is_told_as_that_and_not_as_want_of_memory() {
        assert_eq!(prepare(), Ok(()));
        let error = found(ptr::null_mut()).unwrap_err();
        assert!(matches!(&error, Fault::Error(text) if text.contains("`pow`")), "{error}");
    }

    #[test]
    fn the_program_takes_this_one() {
        // SAFETY: as the C library declares it.
        unsafe extern "C" {
            #[link_name = "pow"]
            safe fn linked(base: f64, exponent: f64) -> f64;
        }
        assert!(std::ptr::fn_addr_eq(linked as extern "C" fn(f64, f64) -> f64, pow as Pow));
    }
}
