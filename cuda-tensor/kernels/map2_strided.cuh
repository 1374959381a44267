// Operations on two numbers, in tensors that are strided or broadcast.

// y[i] = operation(a[i], b[i]) with operands that are strided or broadcast
extern "C" __global__ void map2_strided(const Stored *a, const Stored *b, Stored *y, StridedIndex<2> walk, u32 operation)
{
#define OF(NUMBER, NAME)                                                                                               \
    case NUMBER: return combined<Stored>(a, b, [](Value a, Value b) { return narrow(Wrapping<Value>::NAME(a, b)); });
    auto of_pack = [=](Pack<Stored, LANES> a, Pack<Stored, LANES> b) {
        switch (operation) { OPERATIONS(OF) }
        return a;
    };
#undef OF
#define OF(NUMBER, NAME)                                                                                               \
    case NUMBER: return narrow(Wrapping<Value>::NAME(widen(a), widen(b)));
    auto of_element = [=](Stored a, Stored b) {
        switch (operation) { OPERATIONS(OF) }
        return a;
    };
#undef OF
    each_strided<STRIDED_PACKS>(a, b, y, walk, of_pack, of_element);
}
