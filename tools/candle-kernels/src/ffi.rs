//! The launchers of compiled kernels that `candle-core` links. Each of them aborts the process.

#![allow(non_snake_case, missing_docs, clippy::too_many_arguments)] // the names and parameters of the real crate

use std::ffi::c_void;

macro_rules! launchers {
    ($parameters:tt: $($name:ident)*) => {$(launcher! { $name $parameters })*};
}

macro_rules! launcher {
    ($name:ident ($($type:ty),*)) => {
        /// Prints a message and aborts the process.
        ///
        /// # Safety
        /// There are no requirements. The function is `unsafe` because that of the real crate is.
        pub unsafe extern "C" fn $name($(_: $type),*) {
            eprintln!(concat!(
                "candle-kernels: ", stringify!($name),
                " is missing: this workspace builds candle without its kernels (tools/candle-kernels); \
                run this operation in a workspace that uses the crate candle-kernels of crates.io"
            ));
            std::process::abort();
        }
    };
}

// vx, vy, dst, ncols_x, nrows_x, stride_col_y, stride_col_dst, b_size, stream
launchers! {
    (*const c_void, *const c_void, *mut c_void, i32, i32, i32, i32, i32, *mut c_void):
    launch_mmvq_gguf_q4_0_bf16_plain
    launch_mmvq_gguf_q4_1_bf16_plain
    launch_mmvq_gguf_q5_0_bf16_plain
    launch_mmvq_gguf_q5_1_bf16_plain
    launch_mmvq_gguf_q8_0_bf16_plain
    launch_mmvq_gguf_q2_k_bf16_plain
    launch_mmvq_gguf_q3_k_bf16_plain
    launch_mmvq_gguf_q4_k_bf16_plain
    launch_mmvq_gguf_q5_k_bf16_plain
    launch_mmvq_gguf_q6_k_bf16_plain
    launch_mmvq_gguf_q4_0_f16_plain
    launch_mmvq_gguf_q4_1_f16_plain
    launch_mmvq_gguf_q5_0_f16_plain
    launch_mmvq_gguf_q5_1_f16_plain
    launch_mmvq_gguf_q8_0_f16_plain
    launch_mmvq_gguf_q2_k_f16_plain
    launch_mmvq_gguf_q3_k_f16_plain
    launch_mmvq_gguf_q4_k_f16_plain
    launch_mmvq_gguf_q5_k_f16_plain
    launch_mmvq_gguf_q6_k_f16_plain
    launch_mmvq_gguf_q4_0_f32_plain
    launch_mmvq_gguf_q4_1_f32_plain
    launch_mmvq_gguf_q5_0_f32_plain
    launch_mmvq_gguf_q5_1_f32_plain
    launch_mmvq_gguf_q8_0_f32_plain
    launch_mmvq_gguf_q2_k_f32_plain
    launch_mmvq_gguf_q3_k_f32_plain
    launch_mmvq_gguf_q4_k_f32_plain
    launch_mmvq_gguf_q5_k_f32_plain
    launch_mmvq_gguf_q6_k_f32_plain
}

// x, vy, kx, kx_padded, num_rows, stream
launchers! {
    (*const c_void, *mut c_void, i32, i32, i32, *mut c_void):
    launch_mmvq_gguf_quantize_q8_1_bf16
    launch_mmvq_gguf_quantize_q8_1_f16
    launch_mmvq_gguf_quantize_q8_1_f32
}

// x, ids, vy, type_x, ne00, s01, s02, s03, ne0, ne1, ne2, ne3, stream
launchers! {
    (*const c_void, *const i32, *mut c_void, i32, i64, i64, i64, i64, i64, i64, i64, i64, *mut c_void):
    launch_mmq_quantize_q8_1_D4
    launch_mmq_quantize_q8_1_DS4
    launch_mmq_quantize_q8_1_D2S6
}

// tmp_fixup, x, y, dst, ncols_x, nrows_x, ncols_y, stride_row_x, stride_col_dst, cc, nsm, smpbo, warp_size, stream
launchers! {
    (*mut c_void, *const c_void, *const c_void, *mut c_void, i64, i64, i64, i64, i64, i32, i32, i64, i32, *mut c_void):
    launch_mmq_gguf_q4_0
    launch_mmq_gguf_q4_1
    launch_mmq_gguf_q5_0
    launch_mmq_gguf_q5_1
    launch_mmq_gguf_q8_0
    launch_mmq_gguf_q2_k
    launch_mmq_gguf_q3_k
    launch_mmq_gguf_q4_k
    launch_mmq_gguf_q5_k
    launch_mmq_gguf_q6_k
}
