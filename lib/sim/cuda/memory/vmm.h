// Virtual memory management: reserved addresses, physical handles, mappings.
//
// Others see only whether an address is reserved.  DriverLock held.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace sim::vmm {

// Whether an address lies in a reservation of cuMemAddressReserve, mapped or not.
bool IsReserved(uintptr_t address);

// The reservation's extent; false when the address lies in none.
bool FindReservation(uintptr_t address, uintptr_t* base, size_t* bytes);

// One more or one less mapping of (a part of) a physical handle, as sparse arrays make them.
// AddMapping is false for a handle that is not live.
bool AddMapping(uint64_t handle);
void DropMapping(uint64_t handle);

}  // namespace sim::vmm
