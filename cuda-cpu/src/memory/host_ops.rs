//! Accesses of the host to device memory: read, write, fill, copy.

use super::access;
use super::error::AccessError;
use super::storage::Allocation;
use super::table::Memory;

/// The size of the bounce buffer of overlapping copies, in bytes.
const BOUNCE: usize = 64 << 10;

impl Memory {
    /// Reads device memory from `address` on into `into`.
    ///
    /// # Errors
    /// [`AccessError`] if a range is not inside one allocation.
    pub fn read(&self, address: u64, into: &mut [u8]) -> Result<(), AccessError> {
        let from = self.find(address, into.len() as u64)?;
        get(&from, address, into);
        Ok(())
    }

    /// Writes `bytes` to device memory from `address` on.
    ///
    /// # Errors
    /// [`AccessError`] if a range is not inside one allocation.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), AccessError> {
        let to = self.find(address, bytes.len() as u64)?;
        to.mark(address, bytes.len() as u64);
        put(&to, address, bytes);
        Ok(())
    }

    /// Writes `pattern` `count` times, from `address` on. Patterns of 1, 2 and 4 bytes are fast.
    ///
    /// # Errors
    /// [`AccessError`] if a range is not inside one allocation.
    pub fn fill(&self, address: u64, pattern: &[u8], count: u64) -> Result<(), AccessError> {
        let size = pattern.len() as u64;
        let bytes = size.saturating_mul(count);
        let to = self.find(address, bytes)?;
        to.mark(address, bytes);
        // SAFETY: `find` has checked the range, so the offset is inside.
        let dst = unsafe { to.host().add((address - to.base) as usize) };
        let word = match *pattern {
            [a] => u32::from(a),
            [a, b] if address.is_multiple_of(2) => u32::from(u16::from_le_bytes([a, b])),
            [a, b, c, d] if address.is_multiple_of(4) => u32::from_le_bytes([a, b, c, d]),
            _ => {
                for at in 0..count {
                    put(&to, address + at * size, pattern);
                }
                return Ok(());
            }
        };
        // SAFETY: the range is checked, and aligned: host bytes are aligned as addresses are.
        unsafe { access::fill(dst, word, pattern.len(), count as usize) };
        Ok(())
    }

    /// Copies `len` bytes inside device memory. The ranges may overlap; the result is that of a copy through a separate
    /// buffer. Copies of unwritten bytes count as unwritten.
    ///
    /// # Errors
    /// [`AccessError`] if a range is not inside one allocation.
    pub fn copy(&self, dst: u64, src: u64, len: u64) -> Result<(), AccessError> {
        let (to, from) = (self.find(dst, len)?, self.find(src, len)?);
        if dst == src {
            return Ok(());
        }
        if src < dst && dst - src < len {
            copy_backwards(&to, dst, src, len);
        } else if dst < src && src - dst < len {
            copy_forwards(&to, dst, src, len);
        } else {
            let (d, s) = ((dst - to.base) as usize, (src - from.base) as usize);
            // SAFETY: `find` has checked both ranges, and they do not overlap.
            unsafe { access::copy(to.host().add(d), from.host().add(s), len as usize) };
        }
        if let (Some(copied), Some(source)) = (&to.written, &from.written) {
            copied.copy(dst - to.base, source, src - from.base, len);
        }
        Ok(())
    }
}

/// Reads bytes of `from`. The range must be inside the allocation.
fn get(from: &Allocation, address: u64, into: &mut [u8]) {
    debug_assert!(from.holds(address, into.len() as u64));
    let at = (address - from.base) as usize;
    // SAFETY: the caller has found the range in this allocation; `into` is ours alone.
    unsafe { access::copy(into.as_mut_ptr(), from.host().add(at), into.len()) };
}

/// Writes bytes to `to`. The range must be inside the allocation.
fn put(to: &Allocation, address: u64, bytes: &[u8]) {
    debug_assert!(to.holds(address, bytes.len() as u64));
    let at = (address - to.base) as usize;
    // SAFETY: the caller has found the range in this allocation; `bytes` is borrowed for the call.
    unsafe { access::copy(to.host().add(at), bytes.as_ptr(), bytes.len()) };
}

/// Copies inside one allocation to a lower address.
fn copy_forwards(within: &Allocation, dst: u64, src: u64, len: u64) {
    let mut bounce = vec![0; BOUNCE.min(len as usize)];
    let mut done = 0;
    while done < len {
        let n = (len - done).min(BOUNCE as u64);
        let piece = &mut bounce[..n as usize];
        get(within, src + done, piece);
        put(within, dst + done, piece);
        done += n;
    }
}

/// Copies inside one allocation to a higher address.
fn copy_backwards(within: &Allocation, dst: u64, src: u64, len: u64) {
    let mut bounce = vec![0; BOUNCE.min(len as usize)];
    let mut left = len;
    while left > 0 {
        let n = left.min(BOUNCE as u64);
        left -= n;
        let piece = &mut bounce[..n as usize];
        get(within, src + left, piece);
        put(within, dst + left, piece);
    }
}
