//! Addresses of this machine.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The IP addresses of all interfaces, one after the other.
///
/// # Errors
/// The system does not tell.
pub fn interface_addresses() -> io::Result<Vec<IpAddr>> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: `first` is a valid place for the call to write the head of its list to.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut all = Vec::new();
    let mut next = first;
    // SAFETY: the list is as the system made it until it is freed below: each entry is valid or the end, and so is its
    // address, which is of the kind that its family says.
    unsafe {
        while let Some(entry) = next.as_ref() {
            all.extend(ip(entry.ifa_addr));
            next = entry.ifa_next;
        }
        libc::freeifaddrs(first);
    }
    Ok(all)
}

/// # Safety
/// `at` is null, or points to an address of the kind that its family says.
unsafe fn ip(at: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: as promised by the caller; a family's address may be read without regard to its alignment.
    unsafe {
        match libc::c_int::from(at.as_ref()?.sa_family) {
            libc::AF_INET => {
                let address = at.cast::<libc::sockaddr_in>().read_unaligned();
                Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into())
            }
            libc::AF_INET6 => {
                let address = at.cast::<libc::sockaddr_in6>().read_unaligned();
                Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_among_the_addresses_of_the_machine() {
        assert!(interface_addresses().unwrap().contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)));
    }
}
