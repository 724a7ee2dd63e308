// Device memory that a kernel's first launch makes the driver take: a stack for every thread that
// the device can hold at once. Asked once for each function in each context; a launch seen before
// costs one load, and one question more in a process that had several contexts.
#pragma once

#include <stdint.h>

#include "driver_abi.h"
#include "hooks/fence.h"

namespace gpufence {

// True when the function was launched before in the calling thread's context: a CUkernel in its
// place serves in all of them, and each takes a stack of its own. Direct-mapped: two functions may
// push each other out, which costs another look and nothing else.
enum class Launched : uint8_t { kNever, kBefore, kCollective };
Launched WasLaunched(CUfunction function);
void RememberLaunch(CUfunction function, bool is_collective);

// Whether the function's kernel meets others on other devices (policy/gang.h), by its name: asked
// of the driver where it was not launched before. False where the driver tells no names (before
// CUDA 12.3).
bool IsCollective(CUfunction function);

// The same for a kernel whose function was asked for, and for a function that was.
bool WasLookedUp(const void* handle);
void RememberLookUp(const void* handle);

// From now on contexts are told apart: this process has, or had, more than one.
void TellContextsApart();

// After anything that lets a handle be used again or a context shrink its stack.
void ForgetLaunches();

// Bytes by which a context grows when its threads get `stack_bytes` each instead of what they have:
// the difference times the most threads that the device can hold.
uint64_t StackGrowthBytes(Fence* fence, FencedDevice* device, uint64_t context,
                          uint64_t stack_bytes);

// What a function wants of it, in bytes per thread; 0 when the driver will not say. The handle may
// be a CUkernel in a CUfunction's place.
uint64_t StackOf(CUfunction function);

}  // namespace gpufence
