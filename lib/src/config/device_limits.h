// From claims to the limits of each device: which claim counts there. Inside a dialect its own
// order holds, between dialects the lower number. Pure. Must not know who is told.
#pragma once

#include "config/limits.h"
#include "config/options.h"

namespace gpufence {

// A claim and what it amounts to on one device.
struct Chosen {
  const Claim* claim;  // null: none
  uint64_t amount;
};

// What each dialect says for a device.
struct ByDialect {
  Chosen of[kDialectCount];
};

// Two dialects that differ; null claims: none do.
struct Conflict {
  Chosen lower;
  Chosen higher;
};

// Nothing that names a UUID concerns a device that lacks one.
bool Concerns(const Claim& claim, const DeviceIdentity& device);

ByDialect ChooseInDialects(const Claims& claims, ClaimKind kind, const DeviceIdentity& device);

// The lowest of the dialects that name a limit; *first is the first conflict.
Chosen LowestOf(const ByDialect& by_dialect, Conflict* first);

// Each dialect that limits the share also says how far it may rise, if only by saying nothing: the
// lowest of both holds, so that one dialect's soft share never lifts another's hard one.
ByDialect RiseOf(const ByDialect& hard, const ByDialect& soft);

// LimitDevices that repeats its warnings at every call.
ConfigResult LimitAndWarn(const Claims& claims, const DeviceIdentity* devices, size_t count,
                          DeviceLimits* limits, void (*warn)(const char* text), char* why,
                          size_t why_bytes);

}  // namespace gpufence
