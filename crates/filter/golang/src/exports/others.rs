//! Functions of the SDK for what is not hosted here: bridges from HTTP to TCP.
//!
//! A library may ask for them although no configuration uses what they are for. Configurations that would are refused by
//! name, so no plugin has reason to call them; one that does hears that this is not the time.

use std::ffi::c_int;

use crate::abi::status;

macro_rules! not_hosted {
    ($($name:ident),* $(,)?) => {$(
        // SAFETY: the name is the SDK's, and nothing else has it.
        #[unsafe(no_mangle)]
        pub(super) extern "C" fn $name() -> c_int {
            status::INVALID_PHASE
        }
    )*};
}

not_hosted! {
    envoyGoHttpTcpBridgeCopyHeaders,
    envoyGoHttpTcpBridgeSetRespHeader,
    envoyGoHttpTcpBridgeRemoveRespHeader,
    envoyGoHttpTcpBridgeGetBuffer,
    envoyGoHttpTcpBridgeDrainBuffer,
    envoyGoHttpTcpBridgeSetBufferHelper,
    envoyGoHttpTcpBridgeGetStringValue,
    envoyGoHttpTcpBridgeSetSelfHalfCloseForUpstreamConn,
}
