// Clearing the slots of dead processes.  Private to lib/sim/machine.
#pragma once

#include "machine/file.h"

namespace sim::machine {

// Clears every slot whose owner is gone.  Called with the gate held.
void ClearDeadSlots(MachineFile* file);

}  // namespace sim::machine
