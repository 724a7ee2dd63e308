// What can be done with arrays, without the API around it.  DriverLock held throughout.
#pragma once

#include "cuda/arrays/array_state.h"

namespace sim::array {

CUresult Create(const context::Context& context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
                CUarray* result);

// More levels than the shape has are cut to what it has, none are taken for one.
CUresult CreateMipmap(const context::Context& context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
                      unsigned level_count, CUmipmappedArray* result);

// A level is an array that shares the mipmap's memory; the same handle each time.
CUresult GetLevel(CUmipmappedArray handle, unsigned level, CUarray* result);

CUresult Destroy(CUarray handle);
CUresult Destroy(CUmipmappedArray handle);

// The descriptor an array was created with, or a level's own.
CUresult Describe(CUarray handle, CUDA_ARRAY3D_DESCRIPTOR* descriptor);

}  // namespace sim::array
