// ReadClaims and ResolveLimits with everything that they touch as a parameter, for tests.
#pragma once

#include "config/limits.h"
#include "config/statements.h"

namespace gpufence {

// ReadClaims over these sources. `scratch` needs no initial value.
ConfigResult ReadClaimsFrom(const Sources& sources, Scratch* scratch, Claims* claims, char* why,
                            size_t why_bytes);

// ResolveLimits that repeats its warnings at every call.
ConfigResult ResolveAndWarn(const Claims& claims, const DeviceIdentity* devices, size_t count,
                            DeviceLimits* limits, void (*warn)(const char* text), char* why,
                            size_t why_bytes);

}  // namespace gpufence
