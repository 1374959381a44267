// Kernels that print.

// One line per element: "x[3] = 1.500". Any 1-D launch of at least n threads.
extern "C" __global__ void print_values(const float *x, unsigned int n)
{
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        printf("x[%u] = %.3f\n", i, x[i]);
    }
}

// One line with every kind of conversion, from one thread; the expected text is in README.md.
extern "C" __global__ void print_formats(int i, unsigned long long u, double d)
{
    printf("%d|%5d|%-5d|%05d|%u|%x|%#X|%o|%lld|%llu|%c|%s|%f|%10.2f|%e|%g|%%\n", i, i, i, i, (unsigned int)i, i, i, i,
           (long long)i, u, 'c', "text", d, d, d, d);
}

// No arguments: the argument pointer of printf is null.
extern "C" __global__ void print_hello()
{
    printf("hello from the device\n");
}
