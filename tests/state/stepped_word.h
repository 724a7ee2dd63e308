// A shared word that asks before each access who goes next: put in the place of the atomic word
// when state/ledger.cpp is compiled into a test, which then goes through every order of the
// accesses. Sequentially consistent: orders that only a weaker machine shows are the thread
// sanitizer's to find.
#pragma once

#include <sched.h>
#include <stdint.h>

#include <atomic>

#include "base/futex.h"

namespace statetest {

void Step();    // before each access
int Pass(...);  // instead of waiting: the others' turn

class SteppedWord {
 public:
  static constexpr bool is_always_lock_free = true;

  uint64_t load(std::memory_order = {}) const {
    Step();
    return value_;
  }
  void store(uint64_t value, std::memory_order = {}) {
    Step();
    value_ = value;
  }
  uint64_t fetch_add(uint64_t more, std::memory_order = {}) {
    Step();
    value_ += more;
    return value_ - more;
  }
  uint64_t fetch_sub(uint64_t less, std::memory_order = {}) { return fetch_add(0 - less); }
  bool compare_exchange_strong(uint64_t& expected, uint64_t wanted, std::memory_order = {},
                               std::memory_order = {}) {
    Step();
    if (value_ != expected) {
      expected = value_;
      return false;
    }
    value_ = wanted;
    return true;
  }
  bool compare_exchange_weak(uint64_t& expected, uint64_t wanted, std::memory_order = {},
                             std::memory_order = {}) {
    return compare_exchange_strong(expected, wanted);
  }

  // For the judge, who takes no turn.
  uint64_t look() const { return value_; }
  void put(uint64_t value) { value_ = value; }

 private:
  uint64_t value_;
};

}  // namespace statetest

#define GPUFENCE_WORD statetest::SteppedWord
#define sched_yield() statetest::Pass()
#define Nap(...) statetest::Pass(__VA_ARGS__)
