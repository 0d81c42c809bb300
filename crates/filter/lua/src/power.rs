//! Powers of two for scripts, at the cost of an addition.
//!
//! Lua has no shifts, so scripts that take numbers to pieces say `2 ^ i`. LuaJIT leaves every power to the C library's
//! `pow`, which takes a hundred instructions for it. The function of that name here is the whole program's: what it does
//! not know at once it leaves to the library's, so the results are the same, bit by bit.

use std::ffi::{CStr, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// What an exponent of zero stands as in a double, and where (IEEE 754-2019, section 3.4).
const BIAS: i32 = 1023;
const FRACTION_BITS: u32 = 52;

/// Exponents of normal numbers.
const NORMAL: std::ops::RangeInclusive<i32> = 1 - BIAS..=BIAS;

const NAME: &CStr = c"pow";

type Pow = extern "C" fn(f64, f64) -> f64;

/// The C library's function, once [`prepare`] looked for it.
static LIBRARY: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// `pow` of C99 (7.12.7.4).
// SAFETY: it has the type and the meaning of the C library's function, whose place it takes.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pow(base: f64, exponent: f64) -> f64 {
    let whole = exponent as i32;
    if base == 2.0 && f64::from(whole) == exponent && NORMAL.contains(&whole) {
        return f64::from_bits(((whole + BIAS) as u64) << FRACTION_BITS);
    }
    by_library(base, exponent)
}

fn by_library(base: f64, exponent: f64) -> f64 {
    // SAFETY: it is what the C library calls `pow`, or null, which is none of these.
    let library = unsafe { mem::transmute::<*mut c_void, Option<Pow>>(library()) };
    library.map_or(f64::NAN, |pow| pow(base, exponent))
}

/// Looks for the C library's function, so that no script has to: false where it has none.
pub(crate) fn prepare() -> bool {
    !library().is_null()
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
        let exponents = (-1100..=1100).map(f64::from).chain(numbers).chain([0.5, -0.5, 1e10, f64::MIN_POSITIVE]);
        for exponent in exponents {
            for base in numbers {
                let (ours, theirs) = (pow(base, exponent), by_library(base, exponent));
                assert_eq!(ours.to_bits(), theirs.to_bits(), "{base} ^ {exponent}");
            }
        }
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
