//! Moves of vectors and parts: special registers with four elements, 128-bit registers, bytes.

use crate::args;
use crate::host::Host;

/// Runs a kernel with blocks of 4 x 3 x 2 threads in a grid of 2 x 1 x 3. Each thread stores `a`, `b`, `c` and `d`.
fn run(declarations: &str, body: &str) -> Vec<[u32; 4]> {
    let ptx = format!(
        ".version 8.8\n.target sm_90a\n.address_size 64
.visible .entry k(.param .u64 out) {{
.reg .b64 A, B, o; .reg .b32 a, b, c, d, m, n; .reg .b16 x, y; .reg .b128 u; .reg .v4 .u32 V, W; .reg .v4 .u16 H;
{declarations}
ld.param.u64 o, [out];
mov.u32 m, %ctaid.z; mov.u32 n, %ctaid.x; mad.lo.u32 m, m, 2, n; mov.u32 n, %tid.z; mad.lo.u32 m, m, 2, n;
mov.u32 n, %tid.y; mad.lo.u32 m, m, 3, n; mov.u32 n, %tid.x; mad.lo.u32 m, m, 4, n; mad.wide.u32 o, m, 16, o;
{body}
st.global.v4.u32 [o], {{a, b, c, d}}; ret; }}\n"
    );
    let h = Host::new(&ptx);
    let out = h.zeros::<u32>(4 * THREADS);
    h.run("k", (2, 1, 3), (4, 3, 2), args![out]);
    h.download::<u32>(out, 4 * THREADS).chunks(4).map(|c| c.try_into().unwrap()).collect()
}

const THREADS: usize = 6 * 24;

#[test]
fn special_registers_are_moved_as_vectors() {
    let tid = |i: usize| [i % 4, i / 4 % 3, i / 12 % 2, 0].map(|x| x as u32);
    let ctaid = |i: usize| [i / 24 % 2, 0, i / 48, 0].map(|x| x as u32);
    let check = |body: &str, want: &dyn Fn(usize) -> [u32; 4]| {
        for (i, got) in run("", body).into_iter().enumerate() {
            assert_eq!(got, want(i), "thread {i} of {body}");
        }
    };
    check("mov.v4.u32 {a, b, c, d}, %tid;", &tid);
    check("mov.v4.b32 {a, b, c, d}, %ctaid;", &ctaid);
    check("mov.v4.s32 {a, b, c, d}, %ntid;", &|_| [4, 3, 2, 0]);
    check("mov.v4.u32 {a, b, c, d}, %nctaid;", &|_| [2, 1, 3, 0]);
    check("mov.v4.u32 V, %tid; mov.v4.u32 W, V; mov.v4.u32 {a, b, c, d}, W;", &tid);
    check("mov.v4.u32 {a, b, c, _}, %ctaid; mov.u32 d, 9;", &|i| {
        let [x, y, z, _] = ctaid(i);
        [x, y, z, 9]
    });
    check(
        "mov.v4.u16 H, %tid; cvt.u32.u16 a, H.x; cvt.u32.u16 b, H.y; cvt.u32.u16 c, H.z; cvt.u32.u16 d, H.w;",
        &tid,
    );
    check("mov.v4.b16 {x, y, _, _}, %tid; mov.b32 a, {x, y}; mov.b32 {x, y}, a; mov.u32 c, 0; mov.u32 d, 0;
        cvt.u32.u16 a, x; cvt.u32.u16 b, y;", &|i| {
        let [x, y, ..] = tid(i);
        [x, y, 0, 0]
    });
    // A guarded move writes only the lanes of the guard.
    check(
        ".reg .pred p; setp.eq.u32 p, n, 1; mov.v4.u32 {a, b, c, d}, {5, 6, 7, 8};
        @p mov.v4.u32 {a, b, c, d}, %tid;",
        &|i| if i % 4 == 1 { tid(i) } else { [5, 6, 7, 8] },
    );
}

#[test]
fn registers_of_128_bits_have_four_words() {
    let words = "mov.u32 a, 0x11111111; add.u32 b, a, m; mov.u32 c, 0x33333333; not.b32 d, m; mov.b128 u, {a, b, c, d};";
    let want = |i: u32| [0x1111_1111, 0x1111_1111 + i, 0x3333_3333, !i];
    let halves = run(
        "",
        &format!("{words} mov.b128 {{A, B}}, u; mov.b64 {{a, b}}, A; mov.b64 {{c, d}}, B;"),
    );
    let parts = run("", &format!("{words} mov.b128 {{d, c, b, a}}, u;"));
    let some = run("", &format!("{words} mov.u32 b, 7; mov.b128 {{a, _, c, d}}, u;"));
    for i in 0..THREADS {
        let [a, b, c, d] = want(i as u32);
        assert_eq!(halves[i], [a, b, c, d], "thread {i}");
        assert_eq!(parts[i], [d, c, b, a], "thread {i}");
        assert_eq!(some[i], [a, 7, c, d], "thread {i}");
    }
}

#[test]
fn halfwords_and_words_have_bytes() {
    let got = run(
        ".reg .b8 p, q, r, s;",
        "mov.b32 {p, q, r, s}, 0x84838281; mov.b16 x, {q, r}; mov.b16 {r, s}, x; mov.b32 b, {s, r, q, p};
        cvt.u32.u16 a, x; mov.u32 c, 0; mov.u32 d, 0;",
    );
    assert_eq!(got[0], [0x8382, 0x8182_8283, 0, 0]);
}
