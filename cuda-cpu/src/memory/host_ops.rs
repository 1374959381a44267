//! What the host does to device memory: read, write, fill, copy.

use super::access;
use super::error::AccessError;
use super::table::Memory;

/// Bytes of an overlapping copy that go through the bounce buffer at once.
const BOUNCE: usize = 64 << 10;

impl Memory {
    /// Copies device bytes from `address` on into `into`.
    pub fn read(&self, address: u64, into: &mut [u8]) -> Result<(), AccessError> {
        let from = self.find(address, into.len() as u64)?;
        let at = (address - from.base) as usize;
        // SAFETY: `find` has checked the range; `into` is ours alone.
        unsafe { access::copy(into.as_mut_ptr(), from.host().add(at), into.len()) };
        Ok(())
    }

    /// Copies `bytes` to device memory from `address` on.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), AccessError> {
        let to = self.find(address, bytes.len() as u64)?;
        let at = (address - to.base) as usize;
        // SAFETY: `find` has checked the range; `bytes` is borrowed for the call.
        unsafe { access::copy(to.host().add(at), bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    /// Writes `pattern` (1, 2 or 4 bytes; other lengths work, slowly) `count` times.
    pub fn fill(&self, address: u64, pattern: &[u8], count: u64) -> Result<(), AccessError> {
        let size = pattern.len() as u64;
        let bytes = size.saturating_mul(count);
        let to = self.find(address, bytes)?;
        // SAFETY: `find` has checked the range, so the offset is inside.
        let dst = unsafe { to.host().add((address - to.base) as usize) };
        let word = match *pattern {
            [a] => u32::from(a),
            [a, b] if address.is_multiple_of(2) => u32::from(u16::from_le_bytes([a, b])),
            [a, b, c, d] if address.is_multiple_of(4) => u32::from_le_bytes([a, b, c, d]),
            _ => {
                for at in 0..count {
                    self.write(address + at * size, pattern)?;
                }
                return Ok(());
            }
        };
        // SAFETY: the range is checked, and aligned: host bytes are aligned as addresses are.
        unsafe { access::fill(dst, word, pattern.len(), count as usize) };
        Ok(())
    }

    /// Copies `len` bytes inside device memory. Overlapping ranges give what a copy through a third
    /// place would give.
    pub fn copy(&self, dst: u64, src: u64, len: u64) -> Result<(), AccessError> {
        let (to, from) = (self.find(dst, len)?, self.find(src, len)?);
        if src < dst && dst - src < len {
            return self.copy_backwards(dst, src, len);
        }
        if dst < src && src - dst < len {
            return self.copy_forwards(dst, src, len);
        }
        let (d, s) = ((dst - to.base) as usize, (src - from.base) as usize);
        // SAFETY: `find` has checked both ranges, and they do not overlap.
        unsafe { access::copy(to.host().add(d), from.host().add(s), len as usize) };
        Ok(())
    }

    fn copy_forwards(&self, dst: u64, src: u64, len: u64) -> Result<(), AccessError> {
        let mut bounce = vec![0; BOUNCE.min(len as usize)];
        let mut done = 0;
        while done < len {
            let n = (len - done).min(BOUNCE as u64);
            let piece = &mut bounce[..n as usize];
            self.read(src + done, piece)?;
            self.write(dst + done, piece)?;
            done += n;
        }
        Ok(())
    }

    fn copy_backwards(&self, dst: u64, src: u64, len: u64) -> Result<(), AccessError> {
        let mut bounce = vec![0; BOUNCE.min(len as usize)];
        let mut left = len;
        while left > 0 {
            let n = left.min(BOUNCE as u64);
            left -= n;
            let piece = &mut bounce[..n as usize];
            self.read(src + left, piece)?;
            self.write(dst + left, piece)?;
        }
        Ok(())
    }
}
