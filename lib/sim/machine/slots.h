// Clearing the slots of dead processes.  Private to lib/sim/machine.
#ifndef GPUFENCE_LIB_SIM_MACHINE_SLOTS_H_
#define GPUFENCE_LIB_SIM_MACHINE_SLOTS_H_

#include "machine/file.h"

namespace sim::machine {

// Clears every slot whose owner is gone.  Called with the gate held.
void ClearDeadSlots(MachineFile* file);

}  // namespace sim::machine

#endif  // GPUFENCE_LIB_SIM_MACHINE_SLOTS_H_
