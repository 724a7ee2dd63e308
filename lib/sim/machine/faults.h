// The fault plan: GPUFENCE_SIM_FAULTS="NAME@N=CODE;NAME@N=block:MS;NAME@N=late:MS;NAME@N=kill".
//
// Owns the grammar.  Must not know how a fault is carried out (calls.cpp).  N counts the calls of
// one symbol in one process from 1; '*' means every call, N/M the N-th and each M-th behind it.
// The first matching entry wins.
#pragma once

#include <stdint.h>

namespace sim {

enum class FaultAction : uint8_t { kNone, kCode, kBlock, kLate, kKill };

struct Fault {
  uint64_t call;   // the first
  uint64_t every;  // and each so many-th behind it; 0 = none
  uint64_t value;  // result code, or milliseconds
  uint16_t sym;
  FaultAction action;
};

namespace faults {

// Reads the plan.  False when it cannot be understood; *why then names the entry's defect.
bool Parse(const char* text, const char** why);

// The fault planned for the count-th call of a symbol, or nullptr.
const Fault* Planned(uint16_t sym, uint64_t count);

}  // namespace faults
}  // namespace sim
