// Finds the edges in rows of a grey picture: |gx| + |gy| of Sobel's operator, at most 255.
// picture has rows + 2 rows of width pixels, with the row above and the row below. Left and right, the pixel at the
// edge is repeated. Integer arithmetic: every device computes the same bytes. Any 2-D launch that covers (width, rows).
extern "C" __global__ void edges(const unsigned char *__restrict__ picture, unsigned char *__restrict__ out,
                                 unsigned int width, unsigned int rows)
{
    unsigned int x = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= rows) {
        return;
    }
    unsigned int left = x == 0 ? 0 : x - 1;
    unsigned int right = x + 1 == width ? x : x + 1;
    const unsigned char *above = picture + (size_t)y * width;
    const unsigned char *here = above + width;
    const unsigned char *below = here + width;
    int gx = above[right] + 2 * here[right] + below[right] - above[left] - 2 * here[left] - below[left];
    int gy = below[left] + 2 * below[x] + below[right] - above[left] - 2 * above[x] - above[right];
    out[(size_t)y * width + x] = min(abs(gx) + abs(gy), 255);
}
