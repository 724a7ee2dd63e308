#include "config/limits.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "config/fault.h"
#include "config/size.h"
#include "config/uuid.h"
#include "core/env.h"

namespace gpufence {
namespace {

constexpr std::string_view kMemory = "GPUFENCE_MEMORY_LIMIT";

void CopyText(const char* text, char* to, size_t to_bytes) {
  snprintf(to, to_bytes, "%s", text == nullptr ? "" : text);
}

bool ReadKey(std::string_view key, Claim* claim) {
  if (key.empty()) {
    claim->target = ClaimTarget::kEvery;
    return true;
  }
  key.remove_prefix(1);
  if (ParseUuid(key, claim->uuid)) {
    claim->target = ClaimTarget::kUuid;
    return true;
  }
  claim->target = ClaimTarget::kOrdinal;
  if (key.empty() || key.size() > 4) return false;
  for (const char digit : key) {
    if (digit < '0' || digit > '9') return false;
    claim->index = claim->index * 10 + static_cast<uint32_t>(digit - '0');
  }
  return true;
}

bool ReadClaim(std::string_view name, std::string_view text, Claim* claim, char* why,
               size_t why_bytes) {
  *claim = Claim{};
  if (!ReadKey(name.substr(kMemory.size()), claim)) {
    snprintf(why, why_bytes, "%.*s names neither a GPU index nor a UUID. Write %s_0",
             static_cast<int>(name.size()), name.data(), kMemory.data());
    return false;
  }
  Size size;
  const Fault fault = ParseSize(text, &size);
  if (fault != Fault::kNone) {
    DescribeFault(name, text, fault, why, why_bytes);
    return false;
  }
  claim->amount = size.amount;
  claim->percent_of_device = size.percent_of_device;
  char quoted[kQuoteBytes];
  Quote(text, quoted);
  snprintf(claim->source, sizeof claim->source, "%.*s=%s", static_cast<int>(name.size()),
           name.data(), quoted);
  return true;
}

bool Concerns(const Claim& claim, const DeviceIdentity& device) {
  if (claim.target == ClaimTarget::kEvery) return true;
  if (claim.target == ClaimTarget::kOrdinal) return claim.index == device.ordinal;
  return claim.target == ClaimTarget::kUuid &&
         memcmp(claim.uuid, device.uuid, sizeof claim.uuid) == 0;
}

}  // namespace

ConfigResult ReadClaims(Claims* claims, char* why, size_t why_bytes) {
  claims->count = 0;
  CopyText(EnvText("GPUFENCE_CONTAINER"), claims->container, sizeof claims->container);
  CopyText(EnvText("GPUFENCE_STATE_DIR"), claims->state_folder, sizeof claims->state_folder);
  claims->device_name[0] = '\0';
  const char* scope = EnvText("GPUFENCE_SCOPE");
  claims->process_scope = scope != nullptr && strcmp(scope, "process") == 0;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view line = *entry;
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos || line.substr(0, kMemory.size()) != kMemory) continue;
    const std::string_view name = line.substr(0, equals);
    const std::string_view text = line.substr(equals + 1);
    if (name.size() > kMemory.size() && name[kMemory.size()] != '_') continue;
    if (text.empty() || claims->count == kMostClaims) continue;
    if (!ReadClaim(name, text, &claims->claims[claims->count], why, why_bytes)) {
      return ConfigResult::kInvalid;
    }
    ++claims->count;
  }
  return claims->count > 0 ? ConfigResult::kLimits : ConfigResult::kNothing;
}

ConfigResult ResolveLimits(const Claims& claims, const DeviceIdentity* devices, size_t count,
                           DeviceLimits* limits, void (*warn)(const char* text), char* why,
                           size_t why_bytes) {
  bool limited = false;
  for (size_t d = 0; d < count; ++d) {
    limits[d] = {kUnlimitedBytes, ""};
    const Claim* best = nullptr;
    for (size_t i = 0; i < claims.count; ++i) {
      const Claim& claim = claims.claims[i];
      if (claim.kind != ClaimKind::kMemory || !Concerns(claim, devices[d])) continue;
      if (best == nullptr || claim.target > best->target) best = &claim;
    }
    if (best == nullptr || best->amount == 0) continue;
    uint64_t bytes = best->amount;
    if (best->percent_of_device) bytes = PartOf(devices[d].total_bytes, best->amount);
    limits[d].memory_bytes = bytes < devices[d].total_bytes ? bytes : devices[d].total_bytes;
    CopyText(best->source, limits[d].memory_source, sizeof limits[d].memory_source);
    limited = true;
  }
  return limited ? ConfigResult::kLimits : ConfigResult::kNothing;
}

}  // namespace gpufence
