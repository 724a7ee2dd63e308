// What a core limit is a part of: GPU time, which the library holds, or the threads that a
// multi-process server (MPS) gives a program, which NVIDIA's driver holds by a variable that it
// reads itself. Owns what may stand beside the second, and what must be true before it counts as
// held. Must not know which amount holds on a device (device_limits.cpp).
#include <string.h>

#include "base/log.h"
#include "config/claims.h"
#include "config/grammar.h"
#include "config/text.h"

namespace gpufence {
namespace {

constexpr std::string_view kThreads = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=";

bool IsMps(const Statement& statement) {
  return statement.option->setting == Setting::kCoreMode &&
         EqualsIgnoringCase(statement.text, "mps");
}

const Claim* FirstCores(const Claims& claims, bool (*fits)(const Claim& claim)) {
  for (size_t i = 0; i < claims.count; ++i) {
    const Claim& claim = claims.claims[i];
    if (claim.kind == ClaimKind::kCores && claim.amount > 0 && fits(claim)) return &claim;
  }
  return nullptr;
}

// Who limits GPU time in a file that the tenant could not write means GPU time.
bool IsOperatorsToChoose(const Statements& statements) {
  for (size_t i = 0; i < statements.count; ++i) {
    if (statements.all[i].is_operators && IsMps(statements.all[i])) return false;
  }
  return true;
}

// MPS lends no threads, saves none up and lets nobody go first.
bool RefuseTerms(Reading* reading, const char* mode) {
  constexpr const char* kLine =
      "%.120s has no meaning beside %.120s: MPS gives each program a fixed part of the GPU's "
      "threads. Unset one of them";
  const Claims& claims = *reading->claims;
  for (size_t i = 0; i < claims.count; ++i) {
    const Claim& claim = claims.claims[i];
    if (claim.kind == ClaimKind::kSoftCores && claim.amount > 0 &&
        claim.dialect == static_cast<uint8_t>(Dialect::kGpufence)) {
      return reading->complaint.Say(kLine, claim.source, mode);
    }
  }
  for (const Setting setting :
       {Setting::kPriority, Setting::kWeight, Setting::kCoreBurst, Setting::kCoreFloor}) {
    const Statement* own = StatementOf(reading->statements(), Dialect::kGpufence, setting);
    if (own == nullptr) continue;
    char source[kSourceBytes];
    DescribeStatement(reading->statements(), *own, source);
    return reading->complaint.Say(kLine, source, mode);
  }
  return true;
}

// As the driver finds it, in this process's own environment; 0: it is not there, or no percentage.
uint64_t ThreadsOf(char** environment) {
  for (char** entry = environment; entry != nullptr && *entry != nullptr; ++entry) {
    if (strncmp(*entry, kThreads.data(), kThreads.size()) != 0) continue;
    uint64_t thousandths = 0;
    const std::string_view text = *entry + kThreads.size();
    return ParsePercent(text, &thousandths) == Fault::kNone ? thousandths : 0;
  }
  return 0;
}

}  // namespace

bool ReadMode(Reading* reading) {
  const Statements& statements = reading->statements();
  Claims* claims = reading->claims;
  const Statement* own = StatementOf(statements, Dialect::kGpufence, Setting::kCoreMode);
  if (own == nullptr || EqualsIgnoringCase(own->text, "time")) return true;
  if (!IsMps(*own)) return Refuse(reading, *own, Fault::kMode);
  char source[kSourceBytes];
  DescribeStatement(statements, *own, source);
  if (FirstCores(*claims, [](const Claim&) { return true; }) == nullptr) {
    AddNote(claims, "%s has no effect without a core limit", source);
    return true;
  }
  const Claim* time = FirstCores(*claims, [](const Claim& claim) { return claim.is_ceiling; });
  if (time != nullptr && IsOperatorsToChoose(statements)) {
    AddNote(claims, "%.120s has no effect: an operator's file limits GPU time, %.120s", source,
            time->source);
    return true;
  }
  const Claim* small =
      FirstCores(*claims, [](const Claim& claim) { return claim.amount < kThousand; });
  if (small != nullptr) {
    return reading->complaint.Say(
        "%.120s is less than MPS can give beside %.120s. Write 1 or more, or unset the mode",
        small->source, source);
  }
  if (!RefuseTerms(reading, source)) return false;
  memcpy(claims->mode_source, source, sizeof source);
  claims->thread_millipercent = ThreadsOf(reading->sources->environment);
  return true;
}

bool LeaveToMps(const Claims& claims, const DeviceIdentity* devices, size_t count,
                DeviceLimits* limits, char* why, size_t why_bytes) {
  Complaint complaint{why, why_bytes};
  const uint64_t given = claims.thread_millipercent;
  for (size_t d = 0; d < count && claims.mode_source[0] != '\0'; ++d) {
    const uint32_t most = limits[d].core_millipercent;
    if (most == 0) continue;
    if (!devices[d].is_mps) {
      return complaint.Say(
          "%.120s needs MPS, and no MPS server serves this program on GPU %u. Start "
          "`nvidia-cuda-mps-control -d` and name its folder in CUDA_MPS_PIPE_DIRECTORY, or unset "
          "the mode to limit GPU time",
          claims.mode_source, devices[d].ordinal);
    }
    if (given == 0 || given > most) {
      return complaint.Say(
          "%.120s allows %u %% of MPS's threads, and CUDA_MPS_ACTIVE_THREAD_PERCENTAGE %s. Set it "
          "to %u or less, or start the program with `gpufence run --mode mps`",
          limits[d].core_source, most / 1000, given == 0 ? "says no percentage" : "is above that",
          most / 1000);
    }
    GPUFENCE_LOG(kInfo, "device %u: MPS gives %u.%03u %% of its threads, %u.%03u at most (%s)",
                 devices[d].ordinal, static_cast<unsigned>(given / 1000),
                 static_cast<unsigned>(given % 1000), most / 1000, most % 1000,
                 limits[d].core_source);
    limits[d].thread_millipercent = most;
    limits[d].core_millipercent = 0;
    limits[d].core_soft_millipercent = 0;
  }
  return true;
}

bool LimitsThreads(const DeviceLimits* limits, size_t count) {
  for (size_t d = 0; d < count; ++d) {
    if (limits[d].thread_millipercent != 0) return true;
  }
  return false;
}

}  // namespace gpufence
