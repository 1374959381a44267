//! Handwritten kernels, for every GPU.

/// `out[i] = a[i] + b[i]` for `i < n`.
pub(crate) const VECADD: &str = "
.version 7.0
.target sm_50
.address_size 64
.visible .entry vecadd(.param .u64 a, .param .u64 b, .param .u64 out, .param .u32 n)
{
    .reg .pred %p<2>;
    .reg .b32 %r<9>;
    .reg .b64 %rd<9>;
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd2, [b];
    ld.param.u64 %rd3, [out];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra DONE;
    mul.wide.u32 %rd4, %r5, 4;
    add.u64 %rd5, %rd1, %rd4;
    add.u64 %rd6, %rd2, %rd4;
    add.u64 %rd7, %rd3, %rd4;
    ld.global.u32 %r6, [%rd5];
    ld.global.u32 %r7, [%rd6];
    add.u32 %r8, %r6, %r7;
    st.global.u32 [%rd7], %r8;
DONE:
    ret;
}
";

/// `*s.to = s.value` after `s.ns` nanoseconds: a struct of value, padding, pointer and time.
pub(crate) const SLOW_STORE: &str = "
.version 7.0
.target sm_50
.address_size 64
.visible .entry slow_store(.param .align 8 .b8 s[24])
{
    .reg .pred %p<2>;
    .reg .b32 %r<2>;
    .reg .b64 %rd<7>;
    ld.param.u32 %r1, [s];
    ld.param.u64 %rd1, [s+8];
    ld.param.u64 %rd2, [s+16];
    mov.u64 %rd3, %globaltimer;
AGAIN:
    mov.u64 %rd4, %globaltimer;
    sub.u64 %rd5, %rd4, %rd3;
    setp.lt.u64 %p1, %rd5, %rd2;
    @%p1 bra AGAIN;
    st.global.u32 [%rd1], %r1;
    ret;
}
";

/// Writes to the last word of `bytes` of dynamic shared memory and copies it to `out`.
pub(crate) const SHARED: &str = "
.version 7.0
.target sm_50
.address_size 64
.extern .shared .align 16 .b8 block[];
.visible .entry shared(.param .u64 out, .param .u32 bytes)
{
    .reg .b32 %r<5>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [bytes];
    mov.u32 %r2, block;
    add.u32 %r3, %r2, %r1;
    st.shared.u32 [%r3+-4], %r1;
    ld.shared.u32 %r4, [%r3+-4];
    st.global.u32 [%rd1], %r4;
    ret;
}
";

/// A kernel without parameters that does nothing.
pub(crate) const EMPTY: &str = "
.version 7.0
.target sm_50
.address_size 64
.visible .entry empty() { ret; }
";

/// A kernel that traps.
pub(crate) const TRAP: &str = "
.version 7.0
.target sm_50
.address_size 64
.visible .entry trapped() { trap; ret; }
";

/// Writes a word to the address that it is given.
pub(crate) const POKE: &str = "
.version 7.0
.target sm_50
.address_size 64
.visible .entry poke(.param .u64 address)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [address];
    mov.u32 %r1, 1;
    st.global.u32 [%rd1], %r1;
    ret;
}
";

/// The struct of [`SLOW_STORE`]; its pointer, at byte 8, is filled in by the launch.
pub(crate) fn slow_store_params(value: u32, nanoseconds: u64) -> [u8; 24] {
    let mut params = [0; 24];
    params[..4].copy_from_slice(&value.to_ne_bytes());
    params[16..].copy_from_slice(&nanoseconds.to_ne_bytes());
    params
}
