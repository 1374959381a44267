//! Status codes of nodes.

use std::fmt;

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal;)*) => {
        /// The reason for which a node refused a request or ended a lease. Each variant states the action that the
        /// caller should take.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        #[repr(u16)]
        pub enum Status {
            $($(#[$doc])* $name = $code,)*
        }

        impl Status {
            /// Returns the code on the wire.
            pub const fn code(self) -> u16 {
                self as u16
            }

            /// Returns the status of a code. A code that this version does not know is [`Status::Internal`].
            pub const fn from_code(code: u16) -> Self {
                match code {
                    $($code => Self::$name,)*
                    _ => Self::Internal,
                }
            }
        }

        impl fmt::Display for Status {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$name => $text,)*
                })
            }
        }
    };
}

statuses! {
    /// The request was carried out.
    Ok = 0, "ok";
    /// The request is malformed or states an impossible value. Correct it.
    BadRequest = 1, "bad request";
    /// The certificate or the token gives no access. Use the certificate that the lease was made with, or ask the
    /// operator of the node for one.
    Unauthorized = 2, "unauthorized";
    /// The module could not be loaded. The message has the compiler's log. Correct the module.
    LoadFailed = 3, "load failed";
    /// The launch was refused, or the kernel faulted. Correct the kernel or its arguments. After a fault, acquire a new
    /// lease.
    LaunchFailed = 4, "launch failed";
    /// Device memory could not be written. Check the ranges.
    WriteFailed = 5, "write failed";
    /// Device memory could not be read. Check the ranges.
    ReadFailed = 6, "read failed";
    /// The lease has expired. Acquire a new lease, and renew it in time.
    LeaseExpired = 7, "lease expired";
    /// The node ended the lease: its operator revoked it, a request of higher priority preempted it, or its worker used
    /// more memory than the lease has. The message has the reason. Acquire a new lease.
    Revoked = 8, "revoked";
    /// The device is out of service, because memory of an ended lease was not freed. Use another device or node.
    Fenced = 9, "fenced";
    /// The device or the lease has too little free memory, or the node has no free capacity for another lease. Request
    /// less, or wait.
    CapacityExceeded = 10, "capacity exceeded";
    /// The connection or the worker of the lease is gone. Acquire a new lease.
    Disconnected = 11, "disconnected";
    /// Client and node have no common version of the protocol. Update the older one.
    UnsupportedVersion = 12, "unsupported version";
    /// A limit of the tenant is reached. Free a lease, or ask the operator of the node for a higher limit.
    QuotaExceeded = 13, "quota exceeded";
    /// The lease or device does not exist. Check the name.
    NotFound = 14, "not found";
    /// The node failed for a reason of its own. Report it to the operator of the node.
    Internal = 15, "internal error";
    /// The request exceeds the whole memory of the device or of the lease, or a limit of the node or of the tenant.
    /// Request less, or ask the operator of the node for a higher limit.
    TooLarge = 16, "too large";
}

impl Status {
    /// Returns the status of a request for `requested` bytes that were not free, out of `total`: [`Self::TooLarge`] if
    /// they can never be, or else [`Self::CapacityExceeded`].
    pub const fn of_shortage(requested: u64, total: u64) -> Self {
        if requested > total { Self::TooLarge } else { Self::CapacityExceeded }
    }

    /// Returns whether the same request can succeed later without any change to it.
    pub const fn is_retryable(self) -> bool {
        matches!(self, Self::CapacityExceeded | Self::QuotaExceeded)
    }

    /// Returns whether this status ends a lease.
    pub const fn ends_lease(self) -> bool {
        matches!(self, Self::LeaseExpired | Self::Revoked | Self::Fenced | Self::Disconnected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_round_trip_and_unknown_codes_are_internal_errors() {
        for code in 0..=16 {
            assert_eq!(Status::from_code(code).code(), code);
        }
        assert_eq!(Status::from_code(999), Status::Internal);
    }
}
