// What the tools may ask of the library's own readers. tools/gpufence/config/library.py is the only
// caller. Must not change anything: no hypervisor is asked, no log line is written.
#pragma once

#include <string_view>

#include "answers/json.h"
#include "config/claims.h"

namespace gpufence {

// A text by one of the grammars: {"value": …}, or {"clause": …, "fix": …}.
void AnswerGrammar(std::string_view name, std::string_view text, JsonText* json);

// Everything that is claimed, and with devices ("ordinal nvml uuid-hex total;" each) what holds.
void AnswerClaims(const Sources& sources, const char* devices, JsonText* json);

// Where limits are read and what has no effect, also where they are refused later.
void AnswerSources(const Sources& sources, JsonText* json);

// What applies of the claims, for each GPU that is named: [kind, the claim that names the GPU,
// the claim that applies or null, whether it depends on the GPU, the other claims].
void WriteRows(const Claims& claims, JsonText* json);

}  // namespace gpufence
