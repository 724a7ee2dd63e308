// ReadClaims: every source read in order, every dialect asked.
#include "config/claims.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/env.h"
#include "base/forked.h"
#include "base/log.h"
#include "config/grammar.h"

namespace gpufence {
namespace {

bool HasHardShare(const Claims& claims, uint8_t dialect) {
  for (size_t i = 0; i < claims.count; ++i) {
    const Claim& claim = claims.claims[i];
    if (claim.kind == ClaimKind::kCores && claim.dialect == dialect) return true;
  }
  return false;
}

// A soft share above no limit means nothing; we say so. Beside an explicit "no limit" it is clear.
void DropSoftWithoutHard(Claims* claims) {
  for (size_t i = 0; i < claims->count; ++i) {
    Claim* claim = &claims->claims[i];
    if (claim->kind != ClaimKind::kSoftCores || claim->amount == 0) continue;
    if (HasHardShare(*claims, claim->dialect)) continue;
    claim->amount = 0;
    const bool own = claim->dialect == static_cast<uint8_t>(Dialect::kGpufence);
    AddNote(claims, "%s has no effect without %s", claim->source,
            own ? "GPUFENCE_CORE_LIMIT" : "CUDA_CORE_LIMIT");
  }
}

bool ReadEverything(Reading* reading) {
  Hidden hidden{};
  if (!Gather(*reading->sources, reading->scratch, reading->complaint)) return false;
  char unreadable[kSourceBytes];
  if (!ReadLogLevel(reading->statements(), &reading->claims->log_level, unreadable)) {
    AddNote(reading->claims, "%s is not a log level: errors and warnings are logged", unreadable);
  }
  ReadLogSink(reading);
  if (!DropDisabled(reading)) return false;
  ReadIdentity(reading);
  if (!ReadSwitches(reading, &hidden) || !ReadVgpuConfig(reading, &hidden) ||
      !ReadVcudaFile(reading, &hidden) || !ReadAlnairWorkspace(reading, &hidden) ||
      !ReadVgpuRsFile(reading, &hidden) || !ReadAmounts(reading, hidden) ||
      !ReadMaps(reading, hidden)) {
    return false;
  }
  ReadGroup(reading);
  DropSoftWithoutHard(reading->claims);
  return ReadTerms(reading) && ReadMode(reading);
}

// A soft share alone limits nothing.
bool ClaimsAnything(const Claims& claims) {
  for (size_t i = 0; i < claims.count; ++i) {
    const Claim& claim = claims.claims[i];
    if (claim.amount > 0 && claim.kind != ClaimKind::kSoftCores) return true;
  }
  return false;
}

void NameIgnored(const Statements& statements) {
  for (size_t i = 0; i < statements.count; ++i) {
    if (statements.all[i].option->setting != Setting::kIgnored) continue;
    GPUFENCE_LOG(kInfo, "%s and similar variables of that system have no effect in gpufence",
                 statements.all[i].option->name);
    return;
  }
}

void Clear(Claims* claims) {
  // The claims themselves are written before they are read: clearing 100 KiB would touch them all.
  claims->count = 0;
  claims->note_count = 0;
  claims->process_scope = false;
  claims->container[0] = '\0';
  claims->state_folder[0] = '\0';
  claims->node_folder[0] = '\0';
  claims->device_name[0] = '\0';
  claims->hypervisor[0] = '\0';
  claims->choice.count = 0;
  claims->terms = {};
  claims->priority_source[0] = '\0';
  claims->terms_ceiling = {CorePriority::kHigh, 0, 0, 0};
  claims->mode_source[0] = '\0';
  claims->thread_millipercent = 0;
  claims->log_level = LogLevel::kWarn;
  claims->log_file[0] = '\0';
  claims->log_is_daily = false;
}

}  // namespace

bool AddClaim(Reading* reading, const Claim& claim) {
  Claims* claims = reading->claims;
  if (claims->count == kMostClaims) {
    return reading->complaint.Say("more than %zu limits are set. Set fewer", kMostClaims);
  }
  claims->claims[claims->count++] = claim;
  return true;
}

void AddNote(Claims* claims, const char* format, ...) {
  if (claims->note_count == kMostNotes) return;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(claims->notes[claims->note_count++], kNoteBytes, format, arguments);
  va_end(arguments);
}

bool Refuse(Reading* reading, const Statement& statement, Fault fault) {
  char name[kSourceBytes];
  char quoted[kQuoteBytes];
  Quote(statement.name, quoted);
  const bool in_file = statement.origin == Origin::kConfigFile;
  snprintf(name, sizeof name, "%s%s%.90s", quoted, in_file ? " in " : "",
           in_file ? reading->statements().config_path : "");
  DescribeFault(name, statement.text, fault, reading->complaint.text, reading->complaint.bytes);
  return false;
}

ConfigResult ReadClaimsFrom(const Sources& sources, Scratch* scratch, Claims* claims, char* why,
                            size_t why_bytes) {
  Clear(claims);
  Reading reading{&sources, scratch, claims, {why, why_bytes}, ""};
  if (!ReadEverything(&reading)) return ConfigResult::kInvalid;
  const bool claimed = ClaimsAnything(*claims) || claims->choice.count > 0;
  // Also without a limit: an operator may have set one where the container keeps its region.
  const bool readable = ReadScope(&reading);
  if (!claimed) return ConfigResult::kNothing;
  return readable ? ConfigResult::kLimits : ConfigResult::kInvalid;
}

ConfigResult ReadClaims(Claims* claims, char* why, size_t why_bytes) {
  auto* scratch = static_cast<Scratch*>(MapWipedOnFork(sizeof(Scratch)));
  if (scratch == nullptr) {
    snprintf(why, why_bytes, "no memory to read the limits. Free some");
    return ConfigResult::kInvalid;
  }
  const Sources sources{"", Environment(), true};
  const ConfigResult result = ReadClaimsFrom(sources, scratch, claims, why, why_bytes);
  SuggestLogFile(claims->log_file, claims->log_is_daily);
  if (result == ConfigResult::kLimits) NameIgnored(scratch->statements);
  UnmapWipedOnFork(scratch, sizeof(Scratch));
  return result;
}

}  // namespace gpufence
