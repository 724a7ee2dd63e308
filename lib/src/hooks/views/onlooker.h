// What is shown of the container's limits, in processes with and without CUDA.
//
// A process that uses CUDA asks its fence. One that does not (nvidia-smi, a monitor) looks on: it
// reads the same settings and the container's region, takes no slot, is charged nothing and makes
// nothing. Must not know what a query answers (policy/view.h).
#pragma once

#include <stdint.h>

#include "driver_abi.h"
#include "policy/account.h"
#include "policy/view.h"

namespace gpufence {

// What queries are told of an account.
inline LimitAndUse LimitAndUseOf(Account* account) {
  return {account->LimitBytes(), account->UsedBytes(), account->oversold()};
}

// The limit on the device and what the container holds there. False: no limit holds, or it cannot
// be read, and the driver's own numbers are the answer.
//
// Limits that name a GPU by its CUDA ordinal: what the container's living processes published for
// it by UUID; before any lives, the position in NVML's list, since only CUDA knows what
// CUDA_VISIBLE_DEVICES makes of an ordinal.
bool LookAt(nvmlDevice_t device, LimitAndUse* seen);

// True when the process is one of the container's.
bool IsOurs(uint32_t pid);

// The name that the user wants the GPUs to have; null when there is none.
const char* GivenName();

}  // namespace gpufence
