//! `printf`, parameters and special registers.

use crate::args;
use crate::host::{Arg, Host};

#[test]
fn printf() {
    let h = Host::new(include_str!("../../../kernels/print.ptx"));
    h.run("print_formats", 1, 1, args![42i32, 7u64, 1.5f64]);
    let want =
        "42|   42|42   |00042|42|2a|0X2A|52|42|7|c|text|1.500000|      1.50|1.500000e+00|1.5|%\n";
    assert_eq!(*h.printed.lock().unwrap(), want);
    h.printed.lock().unwrap().clear();
    h.run("print_hello", 1, 2, &[]);
    h.run("print_values", 1, 32, args![h.upload(&[1.5f32, -2.0]), 2u32]);
    let want = "hello from the device\nhello from the device\nx[0] = 1.500\nx[1] = -2.000\n";
    assert_eq!(*h.printed.lock().unwrap(), want);
}

/// CUDA passes at most 32 arguments, and prints the conversions behind them as they are written.
#[test]
fn printf_takes_32_arguments() {
    let text: String = (0..40).map(|at| if at < 35 { "%d " } else { "%%%s" }).collect();
    let format: Vec<_> = text.bytes().chain([0]).map(|byte| byte.to_string()).collect();
    let (bytes, format) = (format.len(), format.join(", "));
    let stores: String =
        (0..40).map(|at| format!("    st.local.u32 [values+{}], {at};\n", 4 * at)).collect();
    let h = Host::new(&format!(
        ".version 7.0\n.target sm_70\n.address_size 64
.extern .func (.param .b32 r) vprintf(.param .b64 format, .param .b64 values);
.global .align 1 .b8 format[{bytes}] = {{{format}}};
.visible .entry k(.param .u64 out) {{
    .local .align 8 .b8 values[160];
    .reg .b32 %r;
    .reg .b64 %d<5>;
{stores}
    mov.u64 %d1, format;
    cvta.global.u64 %d2, %d1;
    mov.u64 %d3, values;
    cvta.local.u64 %d3, %d3;
    {{
    .param .b64 f;
    .param .b64 v;
    .param .b32 r;
    st.param.b64 [f], %d2;
    st.param.b64 [v], %d3;
    call.uni (r), vprintf, (f, v);
    ld.param.b32 %r, [r];
    }}
    ld.param.u64 %d4, [out];
    st.global.u32 [%d4], %r;
    ret;
}}"
    ));
    let out = h.zeros::<u32>(1);
    h.run("k", 1, 1, args![out]);
    let numbers: String = (0..32).map(|at| format!("{at} ")).collect();
    assert_eq!(*h.printed.lock().unwrap(), format!("{numbers}%d %d %d %%s%%s%%s%%s%%s"));
    assert_eq!(h.download::<u32>(out, 1), [32]);
}

#[test]
fn parameters() {
    let h = Host::new(include_str!("../../../kernels/params.ptx"));
    let out = h.zeros::<f64>(8);
    let args =
        args![-3i8, 60_000u16, 200u8, -70_000i32, 1u8, -5_000_000_000i64, 0.5f32, 2.25f64, out];
    h.run("every_scalar", 1, 1, args);
    let want = [-3.0, 60_000.0, 200.0, -70_000.0, 1.0, -5e9, 0.5, 2.25];
    assert_eq!(h.download::<f64>(out, 8), want);

    let table: Vec<f32> = (0..256).map(|i| (i * i) as f32).collect();
    let bytes = Arg(table.iter().flat_map(|v| v.to_le_bytes()).collect());
    let out = h.zeros::<f32>(256);
    h.run("table_by_value", 2, 128, &[bytes, Arg::from(out)]);
    assert_eq!(h.download::<f32>(out, 256), table);
}

#[test]
fn position_registers() {
    let h = Host::with_pool(include_str!("../../../kernels/params.ptx"), 2);
    let (blocks, threads) = (2 * 3 * 2, 5 * 3 * 4);
    let out = h.zeros::<u32>(2 * blocks * threads);
    h.run("where_am_i", (2, 3, 2), (5, 3, 4), args![out]);
    let want: Vec<u32> =
        (0..blocks * threads).flat_map(|i| [(i / threads) as u32, (i % threads) as u32]).collect();
    assert_eq!(h.download::<u32>(out, 2 * blocks * threads), want);
}
