// The simulated machine: one file mapped by every process of a uid that shares GPUFENCE_SIM_STATE.
//
// Owns the devices' identity and capacity, who uses how much of them, and the words from which the
// GPU's time is made.  Must not know CUDA or NVML: it speaks of devices, slots, bytes, nanoseconds.
//
// A process owns a slot as long as it holds an open-file-description lock on the slot's byte, so
// the kernel itself gives the slot back, also after kill -9; whoever finds the lock free clears the
// slot. Every change of who owns what happens under one gate, which is such a lock too.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "machine/config.h"
#include "machine/sms.h"
#include "machine/timeline.h"
#include "machine/turns.h"

namespace sim::machine {

inline constexpr int kMaxSlots = kMaxSeats;
inline constexpr int kNoSlot = -1;
inline constexpr uint64_t kGranuleBytes = uint64_t{2} << 20;  // physical memory is dealt in these

// How long a device was busy lately: a ring of 20 ms buckets, each one word (bucket number in the
// upper 36 bits, busy nanoseconds in the lower 28) so that writers need no lock and a killed one
// leaves no half-written entry.  Holds the last 20 seconds of the machine's clock.
inline constexpr int kBusyBuckets = 1024;
inline constexpr uint64_t kBusyBucketNs = 20'000'000;
struct BusyHistory {
  std::atomic<uint64_t> buckets[kBusyBuckets];
};

// A device, the same for all processes: a GPU, or an instance of one that is split (MIG), which has
// memory, multiprocessors and an engine of its own.
struct DeviceRecord {
  uint8_t uuid[16];
  uint8_t board_uuid[16];  // the GPU's; the same where it is not split
  uint32_t pci_domain;
  uint32_t pci_bus;
  uint32_t pci_device;
  uint32_t sm_count;
  uint64_t memory_bytes;
  std::atomic<uint64_t> native_soft_bytes;  // as NVML sets them for a cgroup, and tells them
  std::atomic<uint64_t> native_hard_bytes;  // again; nothing is refused by them. 0: no limit
  BusyHistory busy;                         // all processes together, dead ones included
  DeviceTimeline compute;                   // the engine that processes take turns on
  SmTable sms;                              // ... or share, where there is a multi-process server
};

// One process's part of one device.
struct SlotDevice {
  std::atomic<uint64_t> used_bytes;
  std::atomic<uint64_t> busy_ns;  // GPU time since the process started
  std::atomic<uint32_t> contexts;
  uint32_t reserved;
  BusyHistory busy;
};

struct Slot {
  std::atomic<uint32_t> pid;   // 0 = nobody; written last when claimed, first when cleared
  std::atomic<uint32_t> bell;  // a futex: changes when the process is to look at the machine again
  uint64_t started_ticks;      // /proc/PID/stat field 22: tells reused pids apart
  uint64_t claimed_ns;
  char name[104];  // /proc/PID/comm or the executable's path
  SlotDevice devices[kMaxDevices];
};

// Opens and maps the machine file, creating or healing it.  Idempotent, thread-safe.  False when it
// cannot (one line was printed) or when the configuration is unusable.
bool Open();

// Opens and takes a slot for this process.  False: no machine, or all slots are taken (one line).
// A forked child owns nothing and may claim its own.
bool ClaimSlot();

// This process's slot index, or kNoSlot.  The slot itself: Slots()[index].
int OwnSlot();

// Valid after Open().  Slots() has kMaxSlots entries; entries with pid 0 are free.
int DeviceCount();
int InstancesPerBoard();  // 0: no GPU is split
inline int DevicesPerBoard() { return InstancesPerBoard() > 0 ? InstancesPerBoard() : 1; }
inline int BoardCount() { return DeviceCount() / DevicesPerBoard(); }
inline int BoardOf(int device) { return device / DevicesPerBoard(); }
MachineClock& Clock();
DeviceRecord& Device(int device);
MeetingTable& AllMeetings();
Slot& SlotAt(int slot);

// Takes bytes of a device for this process, all or nothing: false when the live processes' bytes
// and these would exceed the device.  Exact under any number of racing processes and threads.
bool Reserve(int device, uint64_t bytes);

// Takes as much of `bytes` as is free, in whole granules; returns what was taken.
uint64_t ReserveUpTo(int device, uint64_t bytes);

// Gives bytes back.  More than this process holds is a defect of the caller and is clamped to it.
void Release(int device, uint64_t bytes);

// Bytes in use by live processes; dead ones are cleared on the way.
uint64_t UsedBytes(int device);

// What process lists show of a live process on a device, as LiveSlots left it.
uint64_t ListedBytes(int device, int slot);

// Adds to the context count that process lists are made of (delta +1 or -1).
void CountContext(int device, int delta);

// Whether the process of another slot lives. Without the gate.
bool IsSlotAlive(int slot);

// Changes a slot's bell and wakes who waits for that.
void RingSlot(int slot);

// Fills `slots` with the indices of live processes and returns how many; dead ones are cleared on
// the way.  Works without an own slot.
int LiveSlots(int* slots, int capacity);

// Books [start_ns, end_ns) of the machine's clock as busy: for this process's slot and for the
// device as a whole.
void RecordBusy(int device, uint64_t start_ns, uint64_t end_ns);

// Busy nanoseconds of a history within [from_ns, to_ns); both are rounded to buckets' parts
// proportionally.
uint64_t BusyNs(const BusyHistory& history, uint64_t from_ns, uint64_t to_ns);

// A boot-independent random number written when the machine file was made: two processes share a
// machine exactly if they read the same value.
uint64_t MachineId();

}  // namespace sim::machine
