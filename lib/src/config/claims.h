// From texts to claims: the readers of all dialects and what they share: where they read, where
// they write, how they complain. Must not know which devices there are.
#pragma once

#include "config/grammar.h"
#include "config/limits.h"
#include "config/sources.h"

namespace gpufence {

// ReadClaims over these sources. `scratch` needs no initial value.
ConfigResult ReadClaimsFrom(const Sources& sources, Scratch* scratch, Claims* claims, char* why,
                            size_t why_bytes);

struct Reading {
  const Sources* sources;
  Scratch* scratch;
  Claims* claims;
  Complaint complaint;
  char class_of_service[32];  // as vgpu.rs's hypervisor calls it; "": it does not

  const Statements& statements() const { return scratch->statements; }
};

// Appends a claim; false, with a complaint, when there are too many.
bool AddClaim(Reading* reading, const Claim& claim);

// Keeps a warning for later; more than kMostNotes are dropped.
void AddNote(Claims* claims, const char* format, ...) __attribute__((format(printf, 2, 3)));

// Complains about the text of a statement: "NAME='TEXT' is negative. …". Returns false.
bool Refuse(Reading* reading, const Statement& statement, Fault fault);

// The readers. Each adds the claims of its dialect; false: the complaint says why not.
// vgpu.config, when valid, hides the dialect's variables; vcuda's file hides single ones.
struct Hidden {
  bool vgpu_manager;  // a valid vgpu.config
  bool vcuda_memory;  // memory_limit in the YAML file
  bool own_cores;     // GPUFENCE_CORE_POLICY=off
  bool hami_cores;    // GPU_CORE_UTILIZATION_POLICY=disable
  bool alnair;        // no ALNAIR_ID
  bool vgpu_rs;       // ENABLE_CUDA_HOOKS=false, or limits in the hypervisor's file
};

// In this order: what is taken away, who we are, what is switched off, files, texts.
bool DropDisabled(Reading* reading);
void ReadIdentity(Reading* reading);
void ReadGroup(Reading* reading);  // HAMi's name for a container that nobody else named
bool ReadScope(Reading* reading);
bool ReadSwitches(Reading* reading, Hidden* hidden);
bool ReadVgpuConfig(Reading* reading, Hidden* hidden);
bool ReadVcudaFile(Reading* reading, Hidden* hidden);
bool ReadAlnairWorkspace(Reading* reading, Hidden* hidden);
bool ReadVgpuRsFile(Reading* reading, Hidden* hidden);
bool ReadAmounts(Reading* reading, const Hidden& hidden);
bool ReadMaps(Reading* reading, const Hidden& hidden);
bool ReadTerms(Reading* reading);  // behind all core limits
bool ReadMode(Reading* reading);   // behind all terms

// The log level that the sources ask for, which base/log is told, too; nobody's word leaves `level`
// as it is. False: `unreadable` names one that no dialect understands; it never counts as an
// invalid limit.
bool ReadLogLevel(const Statements& statements, LogLevel* level, char unreadable[kSourceBytes]);

// Where log lines are to go: claims->log_file.
void ReadLogSink(Reading* reading);

}  // namespace gpufence
