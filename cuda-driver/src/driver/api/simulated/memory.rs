//! The calls of the simulated driver about memory pools, reserved addresses and physical memory.

use std::ffi::{c_int, c_void};

use super::{Capture, give, handle, mappings, state};
use crate::driver::{
    api::{
        Address, Api, PhysicalHandle, PhysicalProps, PoolAccess, PoolHandle, PoolProps,
        StreamHandle,
    },
    status,
};

// The backend passes pointers that are valid for writes, as the driver's manual demands.
calls! {
    pool_create(pool: *mut PoolHandle, props: *const PoolProps) {
        let mut state = state();
        let number = state.new_handle();
        // SAFETY: `props` is valid for reads.
        let (device, is_managed) = unsafe { ((*props).device, (*props).is_managed()) };
        state.pools.create(number, device, is_managed);
        // SAFETY: `pool` is valid for writes.
        unsafe { give(pool, PoolHandle(handle(number))) }
    }
    pool_destroy(pool: PoolHandle) { state().pools.destroy(pool.0.addr()) }
    pool_set(pool: PoolHandle, attribute: c_int, value: *mut c_void) {
        // SAFETY: `value` is valid for reads of 64 bits, the size of the attributes that `set` reads.
        state().pools.set(pool.0.addr(), attribute, || unsafe { value.cast::<u64>().read() })
    }
    pool_get(pool: PoolHandle, attribute: c_int, value: *mut c_void) {
        match state().pools.get(pool.0.addr(), attribute) {
            // SAFETY: `value` is valid for writes.
            Some(found) => unsafe { give(value.cast::<u64>(), found) },
            None => status::INVALID_VALUE,
        }
    }
    pool_trim(pool: PoolHandle, keep: usize) { state().pools.trim(pool.0.addr(), keep as u64) }
    pool_alloc(to: *mut Address, bytes: usize, pool: PoolHandle, _stream: StreamHandle) {
        let mut state = state();
        let address = (state.new_handle() as u64).next_multiple_of(256);
        let status = state.pools.allocate(pool.0.addr(), address, bytes as u64);
        if status != 0 {
            return status;
        }
        state.handles = address as usize + bytes;
        // SAFETY: `to` is valid for writes.
        unsafe { give(to, address) }
    }
    pool_free(address: Address, stream: StreamHandle) {
        let mut state = state();
        state.pools.free(address);
        let stream = state.stream(stream);
        stream.captured += usize::from(stream.capture != Capture::None);
        0
    }
    physical_granularity(bytes: *mut usize, _props: *const PhysicalProps, _option: c_int) {
        // SAFETY: `bytes` is valid for writes.
        unsafe { give(bytes, mappings::GRANULARITY) }
    }
    physical_create(
        memory: *mut PhysicalHandle, bytes: usize, _props: *const PhysicalProps, _flags: u64,
    ) {
        let created = state().mappings.create(bytes);
        // SAFETY: `memory` is valid for writes.
        created.map_or(status::OUT_OF_MEMORY, |handle| unsafe { give(memory, handle) })
    }
    physical_release(memory: PhysicalHandle) { state().mappings.release(memory) }
    address_reserve(
        to: *mut Address, bytes: usize, _align: usize, _at: Address, _flags: u64,
    ) {
        let address = state().mappings.reserve(bytes);
        // SAFETY: `to` is valid for writes.
        unsafe { give(to, address) }
    }
    address_map(
        at: Address, bytes: usize, _offset: usize, memory: PhysicalHandle, _flags: u64,
    ) {
        state().mappings.map(at, bytes, memory)
    }
    address_set_access(
        _at: Address, _bytes: usize, _access: *const PoolAccess, _count: usize,
    ) { 0 }
    address_unmap(at: Address, bytes: usize) { state().mappings.unmap(at, bytes) }
    address_free(at: Address, bytes: usize) { state().mappings.free(at, bytes) }
}
