// Integer intrinsics, packed bytes and halfwords, 128 bits, carries, bit fields.
// compile nvrtc12.4-sm_75 nvrtc12.9-sm_80 nvrtc13.0-sm_90 clang19-sm_80 clang22-sm_90 nvcc13.0-sm_75-G nvrtc13.0-sm_120
typedef unsigned char u8;
typedef unsigned u32;
typedef unsigned long long u64;
typedef long long i64;

// case bit_intrinsics <<<4, 64>>>(in u64 special 256, out u32 5120, out u64 1024)
extern "C" __global__ void bit_intrinsics(const u64* in, u32* out, u64* wide) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    u64 x = in[i], y = in[255 - i];
    u32 a = (u32)x, b = (u32)y, s = (u32)(y >> 7) & 63;
    out += i;
#define PUT(v) *out = (v), out += 256;
    PUT(__clz(a)) PUT(__clzll(x)) PUT(__ffs(a)) PUT(__ffsll(x)) PUT(__popc(a)) PUT(__popcll(x)) PUT(__brev(a)) PUT(__byte_perm(a, b, s * 0x1357))
    PUT(__funnelshift_l(a, b, s)) PUT(__funnelshift_lc(a, b, s)) PUT(__funnelshift_r(a, b, s)) PUT(__funnelshift_rc(a, b, s))
    PUT(__mulhi(a, b)) PUT(__umulhi(a, b)) PUT(__mul24(a, b)) PUT(__umul24(a, b)) PUT(__sad((int)a, (int)b, 5)) PUT(__usad(a, b, 5))
    PUT(__hadd((int)a, (int)b)) PUT(__urhadd(a, b))
    wide[i] = __brevll(x), wide[256 + i] = __umul64hi(x, y), wide[512 + i] = __mul64hi((i64)x, (i64)y);
    wide[768 + i] = (u64)__fns(a, s & 31, (int)(b & 7) - 3) << 32 | (u32)abs((int)b);
}

// Packed comparisons, sums and differences: 4 x 8 and 2 x 16 bits.
// case packed <<<4, 64>>>(in u32 special 256, in u32 bits 256, out u32 14336)
extern "C" __global__ void packed(const u32* a, const u32* b, u32* out) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, x = a[i], y = b[i];
    if (i % 4 == 0) y = x;
    if (i % 4 == 1) y = (x & 0xFF00FFFFu) | (y & 0xFF0000u);
    out += i;
#define TWO(f) PUT(f##2(x, y)) PUT(f##4(x, y))
#define ONE(f) PUT(f##2(x)) PUT(f##4(x))
    TWO(__vadd) TWO(__vaddss) TWO(__vaddus) TWO(__vsub) TWO(__vsubss) TWO(__vsubus) TWO(__vavgs) TWO(__vavgu) TWO(__vhaddu)
    TWO(__vabsdiffs) TWO(__vabsdiffu) TWO(__vsads) TWO(__vsadu) TWO(__vmaxs) TWO(__vmaxu) TWO(__vmins) TWO(__vminu)
    TWO(__vcmpeq) TWO(__vcmpgeu) TWO(__vcmplts) TWO(__vcmpne) TWO(__vsetgtu) TWO(__vsetles) TWO(__vseteq)
    ONE(__vabs) ONE(__vabsss) ONE(__vneg) ONE(__vnegss)
}

// The DPX functions: fused sums, maxima and minima of dynamic programming.
// case dpx <<<4, 64>>>(in u32 special 256, in u32 bits 256, out u32 4608)
extern "C" __global__ void dpx(const u32* a, const u32* b, u32* out) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, x = a[i], y = b[i], z = x * 40503u + y;
    bool first, second;
    out += i;
    PUT(__viaddmax_s32((int)x, (int)y, (int)z)) PUT(__viaddmin_u32(x, y, z)) PUT(__viaddmax_s32_relu((int)x, (int)y, (int)z))
    PUT(__viaddmax_s16x2(x, y, z)) PUT(__viaddmin_u16x2(x, y, z)) PUT(__viaddmin_s16x2_relu(x, y, z))
    PUT(__vimax3_s32((int)x, (int)y, (int)z)) PUT(__vimin3_u32(x, y, z)) PUT(__vimax3_s16x2(x, y, z)) PUT(__vimin3_u16x2(x, y, z))
    PUT(__vimax_s32_relu((int)x, (int)y)) PUT(__vimin_s16x2_relu(x, y)) PUT(__vimax3_s16x2_relu(x, y, z)) PUT(__vimin3_s32_relu((int)x, (int)y, (int)z))
    PUT(__vibmax_u32(x, y, &first)) PUT(first) PUT(__vibmin_s16x2(x, y, &first, &second)) PUT(first | second << 1)
}

// case dot_products <<<4, 64>>>(in u32 bits 256, in u32 bits 256, out i32 2048) ref dot_products
extern "C" __global__ void dot_products(const u32* a, const u32* b, int* out) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, x = a[i], y = b[i];
    out += i;
    PUT(__dp4a((int)x, (int)y, (int)i)) PUT((int)__dp4a(x, y, i))
    PUT(__dp2a_lo((int)x, (int)y, 7)) PUT(__dp2a_hi((int)x, (int)y, 7)) PUT((int)__dp2a_lo(x, y, 7u)) PUT((int)__dp2a_hi(x, y, 7u))
    PUT(__dp4a(make_char4(x, x >> 8, x >> 16, x >> 24), make_char4(y, y >> 8, y >> 16, y >> 24), -1))
    PUT(__dp2a_lo(make_short2(x, x >> 16), make_char4(y, y >> 8, y >> 16, y >> 24), -1))
}

// 128 bits: products, quotients, shifts, comparisons.
// case wide_integers <<<2, 64>>>(in u64 special 128, in u64 bits 128, out u64 2048) ref wide_integers
extern "C" __global__ void wide_integers(const u64* a, const u64* b, u64* out) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    u64 p = a[i], q = b[i];
    unsigned __int128 x = (unsigned __int128)p << 64 | q, y = (unsigned __int128)(q >> 40) << 64 | p | 1;
    __int128 s = (__int128)x, t = (__int128)y;
    out += i;
#define WIDE(v) { auto w = (v); *out = (u64)w, out[128] = (u64)(w >> 64), out += 256; }
    WIDE(x * y) WIDE(x / y) WIDE(x % y) WIDE(s / t) WIDE(x << (q & 127)) WIDE(s >> (q & 127)) WIDE((unsigned __int128)p * q)
    WIDE((unsigned __int128)((x < y) | (s < t) << 1 | (x == y) << 2))
}

// 256-bit sums and products with carries in PTX.
struct Big {
    u32 v[8];
};

__device__ Big plus(Big a, Big b, u32& carry) {
    Big c;
    asm("add.cc.u32 %0, %9, %17; addc.cc.u32 %1, %10, %18; addc.cc.u32 %2, %11, %19; addc.cc.u32 %3, %12, %20;"
        "addc.cc.u32 %4, %13, %21; addc.cc.u32 %5, %14, %22; addc.cc.u32 %6, %15, %23; addc.cc.u32 %7, %16, %24; addc.u32 %8, 0, 0;"
        : "=r"(c.v[0]), "=r"(c.v[1]), "=r"(c.v[2]), "=r"(c.v[3]), "=r"(c.v[4]), "=r"(c.v[5]), "=r"(c.v[6]), "=r"(c.v[7]), "=r"(carry)
        : "r"(a.v[0]), "r"(a.v[1]), "r"(a.v[2]), "r"(a.v[3]), "r"(a.v[4]), "r"(a.v[5]), "r"(a.v[6]), "r"(a.v[7]), "r"(b.v[0]), "r"(b.v[1]),
          "r"(b.v[2]), "r"(b.v[3]), "r"(b.v[4]), "r"(b.v[5]), "r"(b.v[6]), "r"(b.v[7]));
    return c;
}

// Montgomery's product modulo the prime 2^255 - 19 by schoolbook rows of mad.lo.cc and madc.hi.
// case carry_chains <<<2, 32>>>(in u32 bits 512, in u32 bits 512, out u32 512, out u32 1024)
extern "C" __global__ void carry_chains(const Big* a, const Big* b, Big* sums, u32* products) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, carry, borrow;
    Big x = a[i], y = b[i], s = plus(x, y, carry);
    // Subtracts 38 for the carry: a borrow chain.
    u32 fix = carry * 38;
    asm("sub.cc.u32 %0, %0, %9; subc.cc.u32 %1, %1, 0; subc.cc.u32 %2, %2, 0; subc.cc.u32 %3, %3, 0; subc.cc.u32 %4, %4, 0;"
        "subc.cc.u32 %5, %5, 0; subc.cc.u32 %6, %6, 0; subc.cc.u32 %7, %7, 0; subc.u32 %8, 0, 0;"
        : "+r"(s.v[0]), "+r"(s.v[1]), "+r"(s.v[2]), "+r"(s.v[3]), "+r"(s.v[4]), "+r"(s.v[5]), "+r"(s.v[6]), "+r"(s.v[7]), "=r"(borrow)
        : "r"(fix));
    s.v[7] ^= borrow & 1;
    sums[i] = s;
    u32 p[16] = {};
#pragma unroll
    for (int r = 0; r < 8; r++) {
        u32 top = 0;
#pragma unroll
        for (int c = 0; c < 8; c++) {
            // p[r + c] + x[r] y[c] + top fits in 64 bits.
            asm("mad.lo.cc.u32 %0, %2, %3, %0; madc.hi.u32 %1, %2, %3, 0;" : "+r"(p[r + c]), "=r"(carry) : "r"(x.v[r]), "r"(y.v[c]));
            asm("add.cc.u32 %0, %0, %2; addc.u32 %1, %3, 0;" : "+r"(p[r + c]), "=r"(top) : "r"(top), "r"(carry));
        }
        p[r + 8] = top;
    }
    for (int k = 0; k < 16; k++) products[i * 16 + k] = p[k];
}

// Bit fields of structs, signed and unsigned, packed into words.
struct Fields {
    u32 a : 5;
    int b : 7;
    u32 c : 1;
    int d : 19;
    u64 e : 33;
    i64 f : 31;
};

// case bit_fields <<<2, 64>>>(inout u64 bits 256, out i64 512)
extern "C" __global__ void bit_fields(Fields* fields, i64* out) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    Fields x = fields[i];
    out[i] = x.a + x.b, out[128 + i] = x.d - x.c, out[256 + i] = (i64)x.e, out[384 + i] = x.f;
    x.a += 3, x.b = -x.b, x.c ^= 1, x.d >>= 2, x.e *= 5, x.f = ~x.f;
    fields[i] = x;
}

// Division by constants and by variables, of all widths.
// case divisions <<<4, 64>>>(in i64 special 256, in i64 bits 256, out i64 3584) ref divisions
extern "C" __global__ void divisions(const i64* a, const i64* b, i64* out) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    i64 x = a[i], y = b[i] >> (b[i] & 63);
    if (y == 0 || y == -1) y = 3;
    int p = (int)x, q = (int)y ? (int)y : 5;
    if (q == -1) q = 7;
    out += i;
    PUT(x / y) PUT(x % y) PUT((i64)((u64)x / (u64)y)) PUT((i64)((u64)x % (u64)y)) PUT(p / q) PUT(p % q)
    PUT((u32)p / (u32)q) PUT((u32)p % (u32)q) PUT(p / 7) PUT(p % 10) PUT(x / 1000000007) PUT((i64)((u64)x % 641)) PUT((short)p / 3) PUT((u8)p % 11)
}
