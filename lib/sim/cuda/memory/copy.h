// Copies on their way into a stream: one door for all their forms.
// Must not know how bytes are moved, nor how long that takes.
#pragma once

#include "cuda/streams/launch_operation.h"
#include "driver_abi.h"

// An export without a per-thread twin: the 32-bit forms of CUDA 3 never had one.
#define SIM_ONE(name, body, parameters, ...) \
  extern "C" CUresult name parameters {      \
    SIM_CALL(name, __VA_ARGS__);             \
    return body(false, __VA_ARGS__);         \
  }                                          \
  static_assert(true)  // asks for the semicolon

namespace sim::copy {

// Whether the caller waits for the bytes. Copies to pageable memory always do, and those from it
// take the bytes before they return, as the driver's staging does.
enum class Waiting : uint8_t { kNever, kUntilDone };

// A copy in a stream. 1 for a description that cannot be performed.
CUresult Issue(bool per_thread, CUstream stream, const CUDA_MEMCPY3D_v2& copy, Waiting waiting);

// A copy of the synchronous kind, in the default stream: between two places on devices it only
// queues. 906 or 900 while a capture forbids it.
CUresult IssueSynchronous(bool per_thread, const CUDA_MEMCPY3D_v2& copy);

// The current context's legacy or per-thread stream for calls that have no stream argument, refused
// while a capture forbids them.
CUresult RefuseSynchronous(bool per_thread);

// Ends of plain copies.
void FromHost(CUDA_MEMCPY3D_v2* copy, const void* host);
void FromDevice(CUDA_MEMCPY3D_v2* copy, CUdeviceptr device);
void FromArray(CUDA_MEMCPY3D_v2* copy, CUarray array, size_t offset);
void ToHost(CUDA_MEMCPY3D_v2* copy, void* host);
void ToDevice(CUDA_MEMCPY3D_v2* copy, CUdeviceptr device);
void ToArray(CUDA_MEMCPY3D_v2* copy, CUarray array, size_t offset);

// One row of bytes with its ends still open.
CUDA_MEMCPY3D_v2 Row(size_t bytes);

}  // namespace sim::copy
