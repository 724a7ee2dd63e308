// What the machine's own parts know of each other: clearing the slots of dead processes, and the
// memories that no single process owns. Under the gate. Private to lib/sim/machine.
#pragma once

#include "machine/file.h"

namespace sim::machine {

// Clears every slot whose owner is gone.  Called with the gate held.
void ClearDeadSlots(MachineFile* file);

// Clears the memories that no process owns and nobody holds any more.
void ClearUnheld(MachineFile* file);

// The bytes of a device that such memories hold: all of them (kNoSlot), or those that are listed
// under one process, which is the owner, and the last importer once the owner let go and every
// descriptor is closed.
uint64_t SharedBytes(const MachineFile& file, int device, int slot);

// The process of a slot is gone.
void ForgetOwner(MachineFile* file, int slot);

}  // namespace sim::machine
