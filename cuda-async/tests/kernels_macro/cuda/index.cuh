#pragma once

static __device__ unsigned int global_index()
{
    return blockIdx.x * blockDim.x + threadIdx.x;
}
