// How contexts change: creation, ending, the thread's stack, limits.
//
// Private to lib/sim/cuda/context*, green.cpp, and launch.cpp for stacks; others see context.h.
// DriverLock held throughout.
#pragma once

#include "cuda/devices/context.h"

namespace sim::context {

// A new context with its bytes taken.  CUDA_ERROR_OUT_OF_MEMORY: nothing is taken.
CUresult Create(int device, unsigned flags, Context** created);

// A context that stands for a green context.  It takes no bytes: the primary it needs has them.
Context* CreateGreenView(uint64_t green, int device, int sm_count);

// Whether a handle was a context once.
bool HasEnded(CUcontext handle);

// Ends a context that is no primary and pops it if it is the thread's current one.
void Destroy(Context* context);

// CUDA_ERROR_INVALID_CONTEXT when nobody retains it.
CUresult ReleasePrimary(int device);

// Ends what the primary context holds; its retains still count, as releases will.
void ResetPrimary(int device);
void SetPrimaryFlags(int device, unsigned flags);
const Context* Primary(int device);  // null: there never was one
unsigned PrimaryFlags(int device);
bool IsPrimaryActive(int device);

// The calling thread's stack.  CurrentHandle is 0 when it is empty; Pop is false then.
uint64_t CurrentHandle();
bool Push(uint64_t handle);
bool Pop(uint64_t* handle);
bool Replace(uint64_t handle);

// Default limits, which an empty context's bytes include.
void ResetLimits(Context* context);
void ReleaseLimits(Context* context);

// Makes the stack of every thread that can be resident hold `bytes`, as a launch needs it; it stays
// until the stack limit is set.  False: out of memory.
bool GrowStack(Context* context, uint64_t bytes);

// The SMs of a device are dealt in groups of this many.
inline constexpr unsigned kSmGroup = 8;

}  // namespace sim::context
